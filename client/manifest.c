#include "client/manifest.h"

#include "common/digest.h"
#include "common/message.h"
#include "privacy/entry.h"

#include <string.h>

static const char *complaint(const Tacit__AdapterManifest *m)
{
    if (m->format != 1)
        return "its format is unknown";
    if (m->lineage.len != 16 || m->base_digest.len != TACIT_DIGEST_BYTES ||
        m->file_digest.len != TACIT_DIGEST_BYTES)
        return "a digest or the lineage has a wrong size";
    if (m->version == 0 || m->parent_version >= m->version)
        return "its version does not follow its parent's";
    if (m->file_bytes == 0 || m->file_bytes > MANIFEST_FILE_MAX)
        return "its file is empty or larger than 1 GiB";
    if (!(m->delta >= 0 && m->delta < 1) || !(m->epsilon_server >= 0) ||
        !(m->epsilon_published >= 0)) /* infinite where nothing is promised, never NaN */
        return "its epsilon or delta is no number that one can have";
    return NULL;
}

tacit_status manifest_open(Tacit__AdapterManifest **out, tacit_span manifest, tacit_span signature,
                           const tacit_note_key *log, tacit_error *err)
{
    *out = NULL;
    if (signature.size != TACIT_SIGNATURE_BYTES ||
        !tacit_signature_holds(log->key, TACIT_MANIFEST_DOMAIN, manifest.data, manifest.size,
                               signature.data))
        return tacit_fail(err, TACIT_INTEGRITY,
                          "adapter: its manifest is not signed by this device's server");
    tacit_status status = TACIT_UNPACK(out, tacit__adapter_manifest, manifest.data, manifest.size,
                                       TACIT_MESSAGE_WIRE_MAX, err);
    if (status != TACIT_OK)
        return status;
    const char *what = complaint(*out);
    if (!what)
        return TACIT_OK;
    tacit_message_free(*out);
    *out = NULL;
    return tacit_fail(err, TACIT_BAD_INPUT, "adapter: manifest: %s", what);
}

static bool publishes(const tacit_entry *e, const manifest_publication *p)
{
    if (e->entry->body_case != TACIT__ENTRY__BODY_PUBLISHED)
        return false;
    const ProtobufCBinaryData *m = &e->entry->published->manifest;
    return m->len == p->manifest.size && memcmp(m->data, p->manifest.data, m->len) == 0;
}

tacit_status manifest_check_logged(const manifest_publication *p, const tacit_note_key *log,
                                   tacit_error *err)
{
    tacit_entry entry;
    if (p->entry.size == 0)
        return tacit_fail(err, TACIT_INTEGRITY,
                          "adapter: the server does not prove that its publication is in the log");
    tacit_status status = tacit_entry_open(&entry, p->entry.data, p->entry.size, err);
    if (status != TACIT_OK)
        return tacit_fail_context(err, "adapter: its publication");
    if (memcmp(entry.envelope->signer.data, log->key, TACIT_SIGN_KEY_BYTES) != 0 ||
        !publishes(&entry, p))
        status = tacit_fail(err, TACIT_INTEGRITY,
                            "adapter: the log's entry does not publish this manifest");
    if (status == TACIT_OK)
        status = tacit_merkle_verify_inclusion(entry.leaf, p->index, p->checkpoint->size,
                                               p->inclusion, p->checkpoint->root, err);
    tacit_entry_close(&entry);
    return status;
}
