#include "engine/encoder_kind.h"

#include <stdio.h>
#include <string.h>

static const encoder_kind *const kinds[] = {
    &encoder_image,
    &encoder_audio,
    &encoder_sensor,
};

#define KINDS (sizeof kinds / sizeof kinds[0])

_Static_assert(KINDS <= ENCODER_KINDS_MAX, "a model has room for one encoder of each kind");

size_t encoder_kind_count(void)
{
    return KINDS;
}

const encoder_kind *encoder_kind_at(size_t i)
{
    return kinds[i];
}

const encoder_kind *encoder_kind_of_modality(tacit_modality modality)
{
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i]->modality == modality)
            return kinds[i];
    return NULL;
}

const encoder_kind *encoder_kind_of_content(tacit_content_kind content)
{
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i]->content == content)
            return kinds[i];
    return NULL;
}

static const char clip[] = "clip";
static const char own_prefix[] = "tacit.";

static gguf_string architecture_of(const gguf_file *file)
{
    gguf_string s = {"", 0};
    if (gguf_get_string(file, "general.architecture", &s, NULL) != TACIT_OK)
        s = (gguf_string){"", 0};
    return s;
}

static bool is_text(gguf_string s, const char *text)
{
    return s.size == strlen(text) && memcmp(s.data, text, s.size) == 0;
}

/* "tacit.WORD" is the architecture of Tacit's own encoder for WORD. */
static bool is_own(gguf_string s, const encoder_kind *kind)
{
    size_t prefix = sizeof own_prefix - 1;
    return !kind->claim && s.size > prefix && memcmp(s.data, own_prefix, prefix) == 0 &&
           is_text((gguf_string){s.data + prefix, s.size - prefix}, kind->word);
}

static bool claims(const gguf_file *file, gguf_string architecture, const encoder_kind *kind)
{
    bool set = false;
    if (is_own(architecture, kind))
        return true;
    return kind->claim && is_text(architecture, clip) &&
           gguf_get_bool(file, kind->claim, &set, NULL) == TACIT_OK && set;
}

bool encoder_kind_is_encoder_file(const gguf_file *file)
{
    gguf_string architecture = architecture_of(file);
    bool encoder = is_text(architecture, clip);
    for (size_t i = 0; i < KINDS; i++)
        encoder = encoder || is_own(architecture, kinds[i]);
    return encoder;
}

/* "clip.has_vision_encoder, clip.has_audio_encoder": the claims of clip files. */
static void name_claims(char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i]->claim && used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
                                     kinds[i]->claim);
}

tacit_status encoder_kind_of_file(const encoder_kind **out, const gguf_file *file, tacit_error *err)
{
    gguf_string architecture = architecture_of(file);
    char known[160];
    *out = NULL;
    for (size_t i = 0; i < KINDS; i++) {
        if (!claims(file, architecture, kinds[i]))
            continue;
        if (*out)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "%s: holds an encoder for %s and one for %s: expected one a file",
                              gguf_name(file), (*out)->word, kinds[i]->word);
        *out = kinds[i];
    }
    if (*out)
        return TACIT_OK;
    name_claims(known, sizeof known);
    if (is_text(architecture, clip))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: says of no encoder that it has it: expected one of %s",
                          gguf_name(file), known);
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: general.architecture is '%.*s': expected 'clip' or 'tacit.sensor'; a "
                      "text model goes to -m",
                      gguf_name(file), (int)(architecture.size > 64 ? 64 : architecture.size),
                      architecture.data);
}
