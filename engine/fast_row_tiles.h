/* `multiply` of the integer kernels whose register tiles are ROWS, two or one rows by one panel:
 * included by such a variant behind its multiply_tile and before fast_multiply_forms.h. */
#ifndef TACIT_ENGINE_FAST_ROW_TILES_H
#define TACIT_ENGINE_FAST_ROW_TILES_H

/* Tiles of ROWS rows by all panels, so that the rows' quanta stay in the nearest cache. */
ALWAYS void multiply(float *y, size_t y_stride, size_t cols, const uint8_t *panel,
                     const fast_rows *a, size_t rows, const fast_form form)
{
    size_t n = a->paired ? 2 * rows : rows, done;
    for (size_t row = 0; row < n; row += done) {
        done = n - row >= ROWS ? ROWS : n - row >= 2 ? 2 : 1;
        for (size_t c = 0; c < cols; c += WIDTH) {
            const uint8_t *p = panel + c / WIDTH * fast_panel_bytes(form, WIDTH, a->blocks);
            size_t left = cols - c;
            if (done == ROWS && a->paired)
                multiply_tile(y + c, y_stride, left, p, a, row, ROWS, true, form);
            else if (done == ROWS)
                multiply_tile(y + c, y_stride, left, p, a, row, ROWS, false, form);
            else if (a->paired)
                multiply_tile(y + c, y_stride, left, p, a, row, 2, true, form);
            else if (done == 2)
                multiply_tile(y + c, y_stride, left, p, a, row, 2, false, form);
            else
                multiply_tile(y + c, y_stride, left, p, a, row, 1, false, form);
        }
    }
}

#endif
