#include "common/link_address.h"

#include "common/text.h"

#include <string.h>
#include <sys/un.h>

static const char tls_scheme[] = "tls+tcp://";
static const char ipc_scheme[] = "ipc://";

static tacit_status parse_ipc(link_address *out, const char *path, tacit_error *err)
{
    size_t most = sizeof((struct sockaddr_un *)0)->sun_path - 1;
    out->is_ipc = true;
    out->path = path;
    if (path[0] != '/' || strlen(path) > most)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: expected an absolute path of at most %zu bytes; choose a shorter "
                          "folder",
                          out->url, most);
    return TACIT_OK;
}

/* HOST:PORT or [IPV6]:PORT: where the host ends, NULL when there is no port. */
static const char *end_of_host(const char *text, const char **host, const char **port)
{
    const char *end;
    bool bracket = text[0] == '[';
    *host = bracket ? text + 1 : text;
    end = strchr(*host, bracket ? ']' : ':');
    if (!end || (bracket && end[1] != ':'))
        return NULL;
    *port = end + (bracket ? 2 : 1);
    return strchr(*port, ':') ? NULL : end;
}

static tacit_status parse_tcp(link_address *out, const char *text, bool listens, tacit_error *err)
{
    const char *host, *port;
    uint64_t number;
    const char *end = end_of_host(text, &host, &port);
    size_t size = end ? (size_t)(end - host) : 0;
    if (!end || size >= sizeof out->host || strlen(port) >= sizeof out->port ||
        (size == 0 && !listens))
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected tls+tcp://HOST:PORT", out->url);
    if (tacit_parse_u64(port, "port", listens ? 0 : 1, 65535, &number, NULL) != TACIT_OK)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected a port from %d to 65535", out->url,
                          listens ? 0 : 1);
    memcpy(out->host, host, size);
    memcpy(out->port, port, strlen(port) + 1);
    return TACIT_OK;
}

tacit_status link_address_parse(link_address *out, const char *url, bool listens, tacit_error *err)
{
    size_t size = url ? strlen(url) : 0;
    *out = (link_address){0};
    if (size == 0 || size >= sizeof out->url)
        return tacit_fail(err, TACIT_BAD_INPUT, "address: expected 1 to %zu bytes, found %zu",
                          sizeof out->url - 1, size);
    memcpy(out->url, url, size + 1);
    if (strncmp(url, ipc_scheme, sizeof ipc_scheme - 1) == 0)
        return parse_ipc(out, out->url + sizeof ipc_scheme - 1, err);
    if (strncmp(url, tls_scheme, sizeof tls_scheme - 1) == 0)
        return parse_tcp(out, url + sizeof tls_scheme - 1, listens, err);
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: expected tls+tcp://HOST:PORT (or ipc:///PATH on this machine)", url);
}

const char *link_address_tcp(const link_address *address)
{
    return address->url + (strchr(tls_scheme, '+') + 1 - tls_scheme);
}
