/* Results and errors.
 *
 * Every function that can fail returns a tacit_status and, where it has one, fills the caller's
 * tacit_error with one line: what, where, expected, found, and what to do next. The first seven
 * values are the exit codes of the programs (sysexits of this project, see README.md); the others
 * say more inside a process and map to one of the seven by tacit_exit_code().
 */
#ifndef TACIT_COMMON_STATUS_H
#define TACIT_COMMON_STATUS_H

typedef enum tacit_status {
    TACIT_OK = 0,
    TACIT_FAILED = 1,      /* the operation failed for a reason of this machine */
    TACIT_USAGE = 2,       /* wrong command line or wrong call */
    TACIT_BAD_INPUT = 3,   /* a file or message from outside is malformed or corrupt */
    TACIT_REFUSED = 4,     /* the privacy policy or an exhausted budget forbids it */
    TACIT_UNREACHABLE = 5, /* the peer cannot be reached */
    TACIT_INTEGRITY = 6,   /* a signature, hash, proof or chain does not hold */

    TACIT_NO_MEMORY = 16, /* exit 1 */
    TACIT_IO = 17,        /* exit 1: errno is in the message */
    TACIT_NOT_FOUND = 18, /* exit 1 */
    TACIT_AGAIN = 19,     /* exit 5: not now, the same call may succeed later */
    TACIT_CONFLICT = 20   /* exit 1: it exists already or the state does not allow it */
} tacit_status;

#define TACIT_MUST_CHECK __attribute__((warn_unused_result))
#define TACIT_PRINTF(at, args) __attribute__((format(printf, at, args)))

#define TACIT_ERROR_MAX 1024

typedef struct tacit_error {
    tacit_status status;
    char message[TACIT_ERROR_MAX]; /* one line, no newline, NUL-terminated */
} tacit_error;

/* Records an error and returns `status`, so that a failing function reads
 * `return tacit_fail(err, TACIT_BAD_INPUT, "...")`. Control bytes that came with arguments are
 * replaced by '?'. `err` may be NULL. */
tacit_status tacit_fail(tacit_error *err, tacit_status status, const char *format, ...)
    TACIT_PRINTF(3, 4);

/* Puts "context: " before the message of `err` and returns err->status. */
tacit_status tacit_fail_context(tacit_error *err, const char *format, ...) TACIT_PRINTF(2, 3);

/* Of opening a file that somebody named: that it is not there or cannot be read is bad input
 * (TACIT_BAD_INPUT, exit 3), and `err`, which may be NULL, says so as well. Other statuses stay. */
tacit_status tacit_status_of_input(tacit_status status, tacit_error *err);

/* The exit code of the programs for a status: 0 to 6. */
int tacit_exit_code(tacit_status status);

/* "ok", "bad_input", ...: stable snake_case words for JSON and logs. */
const char *tacit_status_name(tacit_status status);

/* Runs `call`; on failure goes to `label` with the status in the variable `status`. */
#define TACIT_TRY(call, label)                                                                     \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != TACIT_OK)                                                                    \
            goto label;                                                                            \
    } while (0)

/* The analyzer sees one file at a time: this tells it that what tacit_fail returns is the status
 * given, and so never TACIT_OK. */
#ifdef __clang_analyzer__
#define tacit_fail(err, status, ...) (tacit_fail((err), (status), __VA_ARGS__), (status))
#endif

#endif
