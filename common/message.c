#include "common/message.h"

#include "common/text.h"

#include <stdlib.h>
#include <string.h>

#define BUDGET_BASE ((size_t)64 * 1024)
#define BUDGET_PER_BYTE 64

/* What is left of the memory that one message may take. Freed memory is not given back: the
 * budget bounds the work as well. */
static void *budget_alloc(void *left, size_t size)
{
    size_t *budget = left;
    if (size > *budget)
        return NULL;
    *budget -= size;
    return malloc(size);
}

static void budget_free(void *left, void *memory)
{
    (void)left;
    free(memory);
}

static tacit_status check_message(const ProtobufCMessage *message, int depth, tacit_error *err);

static tacit_status check_enum(const ProtobufCFieldDescriptor *field, const void *value,
                               tacit_error *err)
{
    const ProtobufCEnumDescriptor *known = field->descriptor;
    int number;
    memcpy(&number, value, sizeof number);
    if (protobuf_c_enum_descriptor_get_value(known, number))
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected a %s, found %d", field->name,
                      known->short_name, number);
}

static tacit_status check_text(const ProtobufCFieldDescriptor *field, const void *value,
                               tacit_error *err)
{
    const char *text = *(const char *const *)value;
    if (!text || tacit_utf8_valid((const uint8_t *)text, strlen(text)))
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected UTF-8 text", field->name);
}

/* NOLINTBEGIN(misc-no-recursion): at most TACIT_MESSAGE_DEPTH_MAX deep, see check_message */
static tacit_status check_value(const ProtobufCFieldDescriptor *field, const void *value, int depth,
                                tacit_error *err)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_ENUM:
        return check_enum(field, value, err);
    case PROTOBUF_C_TYPE_STRING:
        return check_text(field, value, err);
    case PROTOBUF_C_TYPE_MESSAGE: {
        const ProtobufCMessage *inner = *(const ProtobufCMessage *const *)value;
        return inner ? check_message(inner, depth + 1, err) : TACIT_OK;
    }
    default:
        return TACIT_OK;
    }
}

static size_t element_size(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_ENUM:
        return sizeof(int);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    default:
        return 0; /* nothing to check in other types */
    }
}

static tacit_status check_field(const ProtobufCMessage *message,
                                const ProtobufCFieldDescriptor *field, int depth, tacit_error *err)
{
    const char *base = (const char *)message;
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        uint32_t chosen;
        memcpy(&chosen, base + field->quantifier_offset, sizeof chosen);
        if (chosen != field->id)
            return TACIT_OK;
    }
    if (field->label != PROTOBUF_C_LABEL_REPEATED)
        return check_value(field, base + field->offset, depth, err);
    size_t count, width = element_size(field);
    memcpy(&count, base + field->quantifier_offset, sizeof count);
    const char *element = *(const char *const *)(const void *)(base + field->offset);
    tacit_status status = TACIT_OK;
    for (size_t i = 0; width && i < count && status == TACIT_OK; i++)
        status = check_value(field, element + i * width, depth, err);
    return status;
}

/* Follows the schema, which nests four deep; the depth is capped all the same. */
static tacit_status check_message(const ProtobufCMessage *message, int depth, tacit_error *err)
{
    const ProtobufCMessageDescriptor *kind = message->descriptor;
    if (depth > TACIT_MESSAGE_DEPTH_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: nested too deeply", kind->short_name);
    if (message->n_unknown_fields)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: unknown field %u; it comes from another version of Tacit",
                          kind->short_name, (unsigned)message->unknown_fields[0].tag);
    for (unsigned i = 0; i < kind->n_fields; i++) {
        tacit_status status = check_field(message, &kind->fields[i], depth, err);
        if (status != TACIT_OK)
            return depth ? status : tacit_fail_context(err, "%s", kind->short_name);
    }
    return TACIT_OK;
}
/* NOLINTEND(misc-no-recursion) */

tacit_status tacit_message_unpack(ProtobufCMessage **message,
                                  const ProtobufCMessageDescriptor *descriptor, const void *data,
                                  size_t size, size_t cap, tacit_error *err)
{
    *message = NULL;
    size_t budget;
    if (size > cap || !tacit_mul_size(size, BUDGET_PER_BYTE, &budget) ||
        !tacit_add_size(budget, BUDGET_BASE, &budget))
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected at most %zu bytes, found %zu",
                          descriptor->short_name, cap, size);
    ProtobufCAllocator bounded = {budget_alloc, budget_free, &budget};
    static const uint8_t nothing;
    ProtobufCMessage *made =
        protobuf_c_message_unpack(descriptor, &bounded, size, size ? data : &nothing);
    if (!made)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: %zu malformed bytes", descriptor->short_name,
                          size);
    tacit_status status = check_message(made, 0, err);
    /* Repeated singular fields, padded varints, spelt-out defaults and a NUL inside a string all
     * show as another length than the one way in which we write a message. */
    if (status == TACIT_OK && protobuf_c_message_get_packed_size(made) != size)
        status = tacit_fail(err, TACIT_BAD_INPUT, "%s: not in the shortest form",
                            descriptor->short_name);
    if (status != TACIT_OK) {
        tacit_message_free(made);
        return status;
    }
    *message = made;
    return TACIT_OK;
}

void tacit_message_free(void *message)
{
    if (message)
        protobuf_c_message_free_unpacked(message, NULL);
}

tacit_status tacit_message_pack(const void *message, size_t cap, uint8_t **data, size_t *size,
                                tacit_error *err)
{
    const ProtobufCMessage *m = message;
    size_t need = protobuf_c_message_get_packed_size(m);
    if (need > cap)
        return tacit_fail(err, TACIT_USAGE, "%s: expected at most %zu bytes, found %zu",
                          m->descriptor->short_name, cap, need);
    uint8_t *bytes = malloc(need + 1);
    if (!bytes)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for %zu bytes",
                          m->descriptor->short_name, need);
    *size = protobuf_c_message_pack(m, bytes);
    *data = bytes;
    return TACIT_OK;
}
