/* `tacit-server init`: makes the folder that `tacit-server run` serves. */
#ifndef TACIT_SERVER_SERVER_INIT_H
#define TACIT_SERVER_SERVER_INIT_H

#include "server/server_config.h"

/* Makes DIR with server.yaml, ca/, keys/ (server.key, nonce.key, tls.key, origin, operator.key,
 * operator.pub), uploads/ and adapters/; server.yaml comes last, and what an interrupted init left
 * is completed. TACIT_CONFLICT when DIR holds a server already: nothing is overwritten. `origin`
 * names the log. `operator_key`: the file of the operator's private key, made when it is missing,
 * which then never lies in DIR; NULL: DIR/keys/operator.key, to be moved away. */
tacit_status server_init(const char *dir, const char *origin, const char *operator_key,
                         const server_config_choice *choice, tacit_error *err) TACIT_MUST_CHECK;

#endif
