/* The device's own entries and the log: each is in it, proved, in order. Receipts are stored in the
 * account and written to DIR/receipts for the auditor. */
#ifndef TACIT_CLIENT_RECEIPTS_H
#define TACIT_CLIENT_RECEIPTS_H

#include "client/session.h"
#include "privacy/receipt.h"

/* What the server answers about an own entry; views of `message`. */
typedef struct receipt_reply {
    tacit_receipt receipt;
    tacit_proof consistency; /* from the checkpoint that this device holds */
    const uint8_t *nonce;    /* 32 bytes; NULL: none came */
    tacit_reservation entry; /* the own entry */
    void *message;
} receipt_reply;

void receipt_reply_free(receipt_reply *r);

/* Sends the stored reserve of a plan, the same bytes however often. */
tacit_status receipt_submit_reserve(client *c, client_session *s,
                                    const uint8_t plan_hash[TACIT_HASH_BYTES], receipt_reply *out,
                                    tacit_error *err) TACIT_MUST_CHECK;

/* Verifies and stores: the account keeps receipt and nonce, and follows the checkpoint. Part of the
 * caller's transaction where one is open. */
tacit_status receipt_store(client *c, const uint8_t hash[TACIT_HASH_BYTES],
                           const receipt_reply *reply, tacit_error *err) TACIT_MUST_CHECK;

/* Brings every own entry into the log, in order, and fetches the receipts that lack, up to the
 * first entry that the open round still has to send itself (its reserve, its spend).
 *
 * TACIT_REFUSED: the server does not take an entry, which one that keeps the rules does only to a
 * device whose entries are false (it takes what was signed before the operator lowered the cap).
 * The entry stays signed and charged. The chain is sequential, so nothing after it can be logged
 * either and another reserve would be spent for nothing: the caller makes none, does what needs no
 * entry, and asks again at the next check-in. */
tacit_status receipts_sync(client *c, client_session *s, tacit_error *err) TACIT_MUST_CHECK;

/* Writes the files that lack of the receipts that are stored, before they are forgotten. */
tacit_status receipts_keep(client *c, tacit_error *err) TACIT_MUST_CHECK;

#endif
