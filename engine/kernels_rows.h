/* The rows of a kernel table that kernels_body.h fills. Included inside the initialiser. */
.panel = 2 * W, .dot = dot, .dot3 = dot3, .axpy = axpy, .scale_by = scale_by, .max = max_of,
                .exp_sum = exp_sum, .widen = widen, .swiglu = swiglu,
                .swiglu_backward = swiglu_backward, .gelu = gelu, .gelu_backward = gelu_backward,
                .rotate = rotate, .rotate_halves = rotate_halves,
