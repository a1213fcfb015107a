#include "common/clock.h"
#include "common/json_print.h"
#include "common/options.h"
#include "engine/cmd_prompt.h"
#include "engine/commands.h"
#include "engine/tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static tacit_status print_json(const tacit_tokens *tokens, double seconds, tacit_error *err)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < tokens->count; i++)
        json_array_append_new(ids, json_integer(tokens->id[i]));
    json_t *object = json_pack("{s:o, s:f}", "tokens", ids, "seconds", seconds);
    return tacit_json_print(object, TACIT_JSON_DIGITS, err);
}

static tacit_status print_ids(const tacit_tokens *tokens)
{
    for (size_t i = 0; i < tokens->count; i++)
        printf("%s%d", i ? " " : "", tokens->id[i]);
    printf("\n");
    return TACIT_OK;
}

tacit_status cmd_tokenize(int argc, char **argv, tacit_error *err)
{
    const char *model = NULL;
    cmd_prompt prompt = {0};
    bool special = false, json = false, help;
    const tacit_option table[] = {
        {"model", 'm', TACIT_OPTION_TEXT, &model, true, "TEXT.gguf", "text model", 0, 0},
        CMD_PROMPT_ROWS(&prompt, "what to tokenize"),
        {"special", 0, TACIT_OPTION_FLAG, &special, false, NULL,
         "text that spells a control token becomes it", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &json, false, NULL, "one JSON object: tokens, seconds", 0,
         0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit tokenize", NULL, 0, 0, "prints the token ids of a text"};
    gguf_file *file = NULL;
    tacit_tokenizer *tokenizer = NULL;
    tacit_tokens tokens = {0};
    tacit_status status;
    TACIT_TRY(tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err), done);
    if (help)
        return TACIT_OK;
    TACIT_TRY(cmd_prompt_read_bytes(&prompt, err), done);
    TACIT_TRY(tacit_status_of_input(gguf_open(&file, model, err), err), done);
    TACIT_TRY(tacit_tokenizer_load(&tokenizer, file, err), done);
    double start = tacit_clock_seconds();
    TACIT_TRY(tacit_tokenize(tokenizer, prompt.text, prompt.size, special, &tokens, err), done);
    double seconds = tacit_clock_seconds() - start;
    status = json ? print_json(&tokens, seconds, err) : print_ids(&tokens);
done:
    cmd_prompt_free(&prompt);
    tacit_tokens_free(&tokens);
    tacit_tokenizer_free(tokenizer);
    gguf_close(file);
    return status;
}
