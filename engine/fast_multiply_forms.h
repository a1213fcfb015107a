/* One function a form, each with the form as a constant, from a variant's `multiply`; and the row
 * of its table. Included by every variant of the integer kernels, behind that function. */
#define MULTIPLY_FORM(FORM)                                                                        \
    static void multiply_##FORM(float *y, size_t y_stride, size_t cols, const uint8_t *panel,      \
                                const fast_rows *a, size_t rows)                                   \
    {                                                                                              \
        multiply(y, y_stride, cols, panel, a, rows, FORM);                                         \
    }
MULTIPLY_FORM(FAST_8)
MULTIPLY_FORM(FAST_4)
MULTIPLY_FORM(FAST_4M)
MULTIPLY_FORM(FAST_5)
MULTIPLY_FORM(FAST_5M)
MULTIPLY_FORM(FAST_6)

#define MULTIPLY_FORMS                                                                             \
    {                                                                                              \
        [FAST_8] = multiply_FAST_8, [FAST_4] = multiply_FAST_4, [FAST_4M] = multiply_FAST_4M,      \
        [FAST_5] = multiply_FAST_5, [FAST_5M] = multiply_FAST_5M, [FAST_6] = multiply_FAST_6       \
    }
