/* DIR/ahead.checkpoint: the newest checkpoint of this log that a device holds and this folder does
 * not reach, which says that the folder is an older copy. `restore` reads it. */
#ifndef TACIT_SERVER_AHEAD_H
#define TACIT_SERVER_AHEAD_H

#include "server/server.h"

/* Writer's thread. Keeps the note when it is the newest so far and tells the operator; what cannot
 * be written is told alone. */
void ahead_note(server *s, const tacit_checkpoint *held, tacit_span note, uint64_t own_size);

/* *found false: there is none. */
tacit_status ahead_read(const server *s, char note[TACIT_CHECKPOINT_MAX], bool *found,
                        tacit_error *err) TACIT_MUST_CHECK;
void ahead_forget(const server *s);

#endif
