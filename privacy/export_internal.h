/* Names in an exported folder, shared by the files that write and read one. */
#ifndef TACIT_PRIVACY_EXPORT_INTERNAL_H
#define TACIT_PRIVACY_EXPORT_INTERNAL_H

#include "common/message.h"
#include "privacy/export.h"

#define EXPORT_CHECKPOINT_NAME "checkpoint"
#define EXPORT_KEYS_NAME "keys.txt"
#define EXPORT_OLD_LOG_NAME "log.bin"
#define EXPORT_OLD_CHECKPOINT_NAME "checkpoint.txt"
#define EXPORT_KEYS_MAX 4096
#define EXPORT_PATH_BYTES 4096

#define EXPORT_SHORT_MAX 65535u /* bytes of an entry that a bundle of the format may hold */
/* Most bytes of a bundle; with 32-bit lengths it is filled with long entries by design alone. */
#define EXPORT_BUNDLE_MAX ((size_t)TACIT_TILE_WIDTH * (2 + EXPORT_SHORT_MAX))
#define EXPORT_BUNDLE32_MAX ((size_t)TACIT_TILE_WIDTH * (4 + TACIT_MESSAGE_ENTRY_MAX))

#endif
