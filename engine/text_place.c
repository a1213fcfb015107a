#include "engine/text_place.h"

#include <inttypes.h>

static void set_position(text_place *place, const tacit_row *row)
{
    place->position[0] = row->position;
    for (size_t i = 1; i < OPS_ROPE_AXES; i++)
        place->position[i] = (uint32_t)((int64_t)row->position + row->shift[i - 1]);
}

void text_places_set(text_place *place, const tacit_row *row, size_t n, size_t first)
{
    for (size_t i = 0, end; i < n; i = end) {
        end = i + 1;
        while (row[i].group != 0 && end < n && row[end].group == row[i].group)
            end++;
        for (size_t r = i; r < end; r++) {
            set_position(&place[r], &row[r]);
            place[r].group_first = (uint32_t)(first + i);
            place[r].group_end = (uint32_t)(first + end);
        }
    }
}

/* The first row that a window reaches from `row`. */
static size_t window_begin(const text_place *place, size_t row, size_t window)
{
    uint32_t position = place[row].position[0];
    size_t out = 0, in = row; /* rows before `out` are outside, rows from `in` on inside */
    while (out < in) {
        size_t middle = out + (in - out) / 2;
        if (position - place[middle].position[0] < window)
            in = middle;
        else
            out = middle + 1;
    }
    return in;
}

text_span text_place_sees(const text_place *place, size_t row, size_t window)
{
    size_t first = window > 0 ? window_begin(place, row, window) : 0;
    size_t group = place[row].group_first;
    return (text_span){first < group ? first : group, place[row].group_end};
}

uint32_t text_place_next(const text_place *place)
{
    uint32_t most = 0;
    for (size_t i = 0; i < OPS_ROPE_AXES; i++)
        most = place->position[i] > most ? place->position[i] : most;
    return most + 1;
}

static tacit_status check_token(const tacit_text_model *m, const tacit_row *row, size_t i,
                                const tacit_media *media, size_t n_media, tacit_error *err)
{
    bool token = row->modality == TACIT_MODALITY_TOKEN;
    if (token && (row->token < 0 || (size_t)row->token >= m->vocab))
        return tacit_fail(err, TACIT_BAD_INPUT, "row %zu: token %" PRId32 ": expected 0 to %zu", i,
                          row->token, m->vocab - 1);
    if (!token &&
        (row->media >= n_media || row->token < 0 || (size_t)row->token >= media[row->media].n_rows))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "row %zu: row %" PRId32
                          " of media %u is not there; %zu media were given, "
                          "encode them first",
                          i, row->token, row->media, n_media);
    return TACIT_OK;
}

/* All numbers: what is beyond the context was never learned. */
static tacit_status check_position(const tacit_text_model *m, const tacit_row *row, size_t i,
                                   tacit_error *err)
{
    for (size_t k = 0; k < OPS_ROPE_AXES; k++) {
        int32_t shift = k > 0 ? row->shift[k - 1] : 0;
        int64_t position = (int64_t)row->position + shift;
        if (shift != 0 && !m->rope[0].axis)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "row %zu: a position of several numbers; models of architecture %s "
                              "know one",
                              i, m->architecture);
        if (position < 0)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "row %zu: position %" PRIu32 " and shift %" PRId32
                              ": expected a sum of at least 0",
                              i, row->position, shift);
        if (position >= (int64_t)m->context_length)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "row %zu: position %" PRId64 " is beyond the model's context of %zu; "
                              "shorten the input",
                              i, position, m->context_length);
    }
    return TACIT_OK;
}

/* Rows of a picture may share their first number. */
static bool is_ahead(const text_place *place, const text_place *before)
{
    if (place->position[0] != before->position[0])
        return place->position[0] > before->position[0];
    for (size_t i = 1; i < OPS_ROPE_AXES; i++)
        if (place->position[i] != before->position[i])
            return true;
    return false;
}

static tacit_status check_order(const tacit_row *row, size_t i, const text_place *before,
                                tacit_error *err)
{
    text_place place;
    set_position(&place, row);
    if (before && !is_ahead(&place, before))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "row %zu: position %" PRIu32 " after %" PRIu32
                          ": expected ascending positions",
                          i, row->position, before->position[0]);
    return TACIT_OK;
}

/* `last`: the highest group before this row. */
static tacit_status check_group(const tacit_row *row, size_t i, uint32_t last, tacit_error *err)
{
    if (row->group != 0 && row->group <= last && (i == 0 || row[-1].group != row->group))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "row %zu: mask group %" PRIu32 " after %" PRIu32
                          ": expected rows of a group side by side and groups in ascending order",
                          i, row->group, last);
    if (row->group != 0 && row->trained)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "row %zu of mask group %" PRIu32
                          " is marked as trained, and the row that "
                          "predicts it would see it",
                          i, row->group);
    return TACIT_OK;
}

tacit_status text_rows_check(const tacit_text_model *m, const tacit_row *row, size_t n,
                             const tacit_media *media, size_t n_media, const text_place *before,
                             tacit_error *err)
{
    tacit_status status = TACIT_OK;
    text_place place;
    uint32_t group = 0;
    for (size_t i = 0; i < n; i++) {
        TACIT_TRY(check_token(m, &row[i], i, media, n_media, err), done);
        TACIT_TRY(check_position(m, &row[i], i, err), done);
        TACIT_TRY(check_order(&row[i], i, before, err), done);
        TACIT_TRY(check_group(&row[i], i, group, err), done);
        group = row[i].group > group ? row[i].group : group;
        set_position(&place, &row[i]);
        before = &place;
    }
done:
    return status;
}
