/* Where the rows of a sequence stand, and which of them see each other.
 *
 * A row sees the rows before it and itself; under a window of w, of those only the rows whose first
 * position is less than w below its own; and always the whole of its mask group (in Gemma 3 the
 * rows of a picture: Hugging Face's masks, where a picture is not cut by windows either). Since
 * positions never descend and a group's rows follow one another, what a row sees is one run of
 * rows, and neither its begin nor its end descends from row to row. */
#ifndef TACIT_ENGINE_TEXT_PLACE_H
#define TACIT_ENGINE_TEXT_PLACE_H

#include "engine/input.h"
#include "engine/text_model.h"

typedef struct text_place {
    uint32_t position[OPS_ROPE_AXES];
    uint32_t group_first, group_end; /* rows of the sequence: its group, or the row alone */
} text_place;

#define TEXT_PLACE_STRIDE (sizeof(text_place) / sizeof(uint32_t)) /* of ops_rope_table */

/* place[i], i in [0, n), of rows that text_rows_check has passed; the first is row `first` of the
 * sequence. */
void text_places_set(text_place *place, const tacit_row *row, size_t n, size_t first);

/* Rows [first, end) of the sequence. */
typedef struct text_span {
    size_t first, end;
} text_span;

/* What `row` sees, `place` being those of the whole sequence; window 0: none. */
text_span text_place_sees(const text_place *place, size_t row, size_t window);

/* The number behind all of a place's: the next token's position. */
uint32_t text_place_next(const text_place *place);

/* Refuses (TACIT_BAD_INPUT, naming the row) tokens outside the vocabulary, rows of media that are
 * not there, places that the model does not know, that are beyond its context or do not ascend, and
 * groups that are cut. `before` is the place of the row before the first, or NULL. Whether media
 * have their encoder rows yet is the caller's to check. */
tacit_status text_rows_check(const tacit_text_model *m, const tacit_row *row, size_t n,
                             const tacit_media *media, size_t n_media, const text_place *before,
                             tacit_error *err) TACIT_MUST_CHECK;

#endif
