/* Protobuf messages from outside: unpacked within a memory budget, then checked against their
 * descriptor. protobuf-c alone keeps unknown fields, takes any number as an enum, takes strings
 * that are no UTF-8 and has no depth limit. */
#ifndef TACIT_COMMON_MESSAGE_H
#define TACIT_COMMON_MESSAGE_H

#include "common/bytes.h"
#include "common/status.h"

#include <protobuf-c/protobuf-c.h>

/* Caps for `cap` below. */
#define TACIT_MESSAGE_WIRE_MAX ((size_t)256 * 1024)   /* one message of the link */
#define TACIT_MESSAGE_ENTRY_MAX ((size_t)1024 * 1024) /* one SignedEntry, plan or schedule */
#define TACIT_MESSAGE_DEPTH_MAX 8                     /* nesting of messages; the schema has 4 */

/* Unpacks `size` bytes as `descriptor`. Refused with TACIT_BAD_INPUT: more than `cap` bytes,
 * malformed bytes, unknown fields, numbers that the enum does not list, strings that are not
 * UTF-8 or hold a NUL, bytes that need more memory than 64 KiB + 64 times their size. An
 * enum's 0 (unspecified) passes; whether it makes sense is the caller's question.
 * *message is freed with tacit_message_free. Thread-safe. */
tacit_status tacit_message_unpack(ProtobufCMessage **message,
                                  const ProtobufCMessageDescriptor *descriptor, const void *data,
                                  size_t size, size_t cap, tacit_error *err) TACIT_MUST_CHECK;

/* NULL is fine. Takes any generated message that tacit_message_unpack made. */
void tacit_message_free(void *message);

/* The same with the types: Tacit__Plan *plan; TACIT_UNPACK(&plan, tacit__plan, data, size, cap,
 * err). */
#define TACIT_UNPACK(out, prefix, data, size, cap, err)                                            \
    tacit_message_unpack((ProtobufCMessage **)(void *)(out), &prefix##__descriptor, data, size,    \
                         cap, err)

/* Packs into malloc'ed bytes, the caller's to free. `message` points to any generated message.
 * A message that packs to more than `cap` bytes is TACIT_USAGE. */
tacit_status tacit_message_pack(const void *message, size_t cap, uint8_t **data, size_t *size,
                                tacit_error *err) TACIT_MUST_CHECK;

/* True when `field` has exactly `size` bytes. */
static inline bool tacit_bytes_are(ProtobufCBinaryData field, size_t size)
{
    return field.len == size;
}

/* A view of a bytes field, and a bytes field over a view (not copied, not owned). */
static inline tacit_span tacit_span_of(ProtobufCBinaryData field)
{
    return (tacit_span){field.data, field.len};
}
static inline ProtobufCBinaryData tacit_field_of(const void *data, size_t size)
{
    return (ProtobufCBinaryData){size, (uint8_t *)(uintptr_t)data};
}

#endif
