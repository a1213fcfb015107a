#include "common/log.h"
#include "common/options.h"
#include "engine/commands.h"

static const tacit_command commands[] = {
    {"run", "answers a prompt", cmd_run},
    {"chat", "answers line by line, as one conversation", cmd_chat},
    {"logits", "prints the scores of the next token", cmd_logits},
    {"bench", "measures tokens a second and memory", cmd_bench},
    {"embed", "prints the rows that a picture, clip or sensor window becomes", cmd_embed},
    {"eval", "measures exact match, loss and perplexity on a dataset", cmd_eval},
    {"inspect", "shows what a model file holds and what of it is not supported", cmd_inspect},
    {"quantize", "writes a model with weights of other types", cmd_quantize},
    {"calibrate", "collects what quantize weighs columns by", cmd_calibrate},
    {"sensor new", "writes a sensor encoder that training starts from", cmd_sensor_new},
    {"tokenize", "prints the token ids of a text", cmd_tokenize},
    {"adapter info", "tells what an adapter is", cmd_adapter_info},
    {"adapter export", "writes an adapter for PEFT or llama.cpp", cmd_adapter_export},
    {"adapter import", "makes an adapter of PEFT's files", cmd_adapter_import},
    {"train", "fine-tunes on a dataset, without privacy", cmd_train},
    {NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    tacit_log_init("tacit", TACIT_LOG_INFO);
    return tacit_commands_main("tacit", "inspects, runs, evaluates and trains multimodal models",
                               commands, argc, argv);
}
