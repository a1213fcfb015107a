/* What the commands that compute with a model share: its options, opening it, its chat template. */
#ifndef TACIT_ENGINE_CMD_SESSION_H
#define TACIT_ENGINE_CMD_SESSION_H

#include "common/options.h"
#include "engine/context.h"
#include "engine/input.h"
#include "engine/media_layout.h"

typedef struct cmd_session_options {
    const char *model, *adapter, *chat_template, *system;
    tacit_option_list mmproj, image, audio, sensor;
    const char *kv, *form;
    uint64_t threads, context;
    bool exact;
} cmd_session_options;

/* Rows of tacit_option tables, said once for all commands. */
#define CMD_MODEL_ROW(to)                                                                          \
    {                                                                                              \
        "model", 'm', TACIT_OPTION_TEXT, (to), true, "TEXT.gguf", "text model", 0, 0               \
    }
#define CMD_MMPROJ_ROW(to, required)                                                               \
    {                                                                                              \
        "mmproj", 0, TACIT_OPTION_LIST, (to), (required), "FILE",                                  \
            "encoder of pictures, sound or sensors", 0, 0                                          \
    }
#define CMD_ADAPTER_ROW(to)                                                                        \
    {                                                                                              \
        "adapter", 0, TACIT_OPTION_TEXT, (to), false, "FILE", "LoRA adapter", 0, 0                 \
    }
#define CMD_THREADS_ROW(to)                                                                        \
    {                                                                                              \
        "threads", 't', TACIT_OPTION_U64, (to), false, "N",                                        \
            "threads; 0: all processors that this process may use (0)", 0, 1024                    \
    }
/* Of commands whose default is exact; the others have CMD_SESSION_ROWS' --exact. */
#define CMD_FAST_ROW(to)                                                                           \
    {                                                                                              \
        "fast", 0, TACIT_OPTION_FLAG, (to), false, NULL,                                           \
            "in the precision of 'tacit run' instead of fp32", 0, 0                                \
    }
#define CMD_FORM_ROW(to)                                                                           \
    {                                                                                              \
        "form", 0, TACIT_OPTION_TEXT, (to), false, "FORM",                                         \
            "how pictures are cut: " MEDIA_FORM_NAMES " (hf)", 0, 0                                \
    }
#define CMD_CHAT_ROW(to)                                                                           \
    {                                                                                              \
        "chat-template", 0, TACIT_OPTION_TEXT, (to), false, "NAME",                                \
            "template of conversations, for instance chatml (the file's)", 0, 0                    \
    }
#define CMD_IMAGE_ROW(to)                                                                          \
    {                                                                                              \
        "image", 0, TACIT_OPTION_LIST, (to), false, "FILE", "JPEG or PNG", 0, 0                    \
    }
#define CMD_AUDIO_ROW(to)                                                                          \
    {                                                                                              \
        "audio", 0, TACIT_OPTION_LIST, (to), false, "FILE", "WAV or FLAC", 0, 0                    \
    }
#define CMD_SENSOR_ROW(to)                                                                         \
    {                                                                                              \
        "sensor", 0, TACIT_OPTION_LIST, (to), false, "FILE", "CSV", 0, 0                           \
    }

/* Those of a cmd_session_options `o`. */
#define CMD_SESSION_ROWS(o)                                                                        \
    CMD_MODEL_ROW(&(o)->model), CMD_MMPROJ_ROW(&(o)->mmproj, false),                               \
        CMD_ADAPTER_ROW(&(o)->adapter), CMD_CHAT_ROW(&(o)->chat_template),                         \
        CMD_THREADS_ROW(&(o)->threads),                                                            \
        {"context",                                                                                \
         'c',                                                                                      \
         TACIT_OPTION_U64,                                                                         \
         &(o)->context,                                                                            \
         false,                                                                                    \
         "ROWS",                                                                                   \
         "longest sequence; 0: the model's (0)",                                                   \
         0,                                                                                        \
         1 << 24},                                                                                 \
        {"kv",                                                                                     \
         0,                                                                                        \
         TACIT_OPTION_TEXT,                                                                        \
         &(o)->kv,                                                                                 \
         false,                                                                                    \
         "TYPE",                                                                                   \
         "keys and values: f32, f16 or int8 (f32)",                                                \
         0,                                                                                        \
         0},                                                                                       \
    {                                                                                              \
        "exact", 0, TACIT_OPTION_FLAG, &(o)->exact, false, NULL,                                   \
            "fp32 activations on dequantized weights; slower, for comparisons", 0, 0               \
    }
#define CMD_SESSION_FILE_ROWS(o)                                                                   \
    CMD_IMAGE_ROW(&(o)->image), CMD_AUDIO_ROW(&(o)->audio), CMD_SENSOR_ROW(&(o)->sensor)
/* clang-format off */
#define CMD_SESSION_MEDIA_ROWS(o)                                                                  \
    CMD_SESSION_FILE_ROWS(o),                                                                      \
    {"system", 0, TACIT_OPTION_TEXT, &(o)->system, false, "TEXT",                                  \
     "a system turn before the user's", 0, 0},                                                     \
    CMD_FORM_ROW(&(o)->form)
/* clang-format on */

/* The template of conversations: the one called `name`, or where that is NULL the file's. A fault
 * of the model that every record would meet, so ask before data are read; the error says how to
 * choose another. */
tacit_status cmd_choose_chat(tacit_model *m, const char *name, tacit_error *err) TACIT_MUST_CHECK;

/* How many media were named. */
size_t cmd_session_media(const cmd_session_options *o);

typedef struct cmd_session {
    tacit_model *model;
    tacit_adapter *adapter;
    tacit_pool *pool;
    tacit_context *context;
    tacit_precision precision;
} cmd_session;

/* `max_rows` as in tacit_context_spec. Close also after a failure. */
tacit_status cmd_session_open(cmd_session *s, const cmd_session_options *o, size_t max_rows,
                              tacit_error *err) TACIT_MUST_CHECK;
void cmd_session_close(cmd_session *s);

/* The conversation of one user turn, behind a system turn where --system is given, by the model's
 * chat template, with encoded media: pictures, then sound, then sensors, then the text.
 * tacit_input_free it. */
tacit_status cmd_session_chat(const cmd_session *s, const cmd_session_options *o,
                              const char *prompt, tacit_input *out,
                              tacit_error *err) TACIT_MUST_CHECK;
/* The prompt as it is: one BOS where the model wants one, then its tokens; with `special` text that
 * spells a control token becomes it. */
tacit_status cmd_session_raw(const cmd_session *s, const char *prompt, bool special,
                             tacit_input *out, tacit_error *err) TACIT_MUST_CHECK;

/* The process's largest resident set so far. */
uint64_t cmd_session_peak_rss(void);

#endif
