#include "server/gate_data.h"

#include "engine/dataset.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static tacit_status check_message(const tacit_dataset *d, const tacit_record *r,
                                  const tacit_message *m, tacit_error *err)
{
    for (size_t i = 0; i < m->n_content; i++)
        if (m->content[i].kind != TACIT_CONTENT_TEXT && access(m->content[i].text, R_OK) != 0)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "gate: %s:%zu: %s: cannot read: %s; pictures lie beside the file, at "
                              "the paths that it names",
                              d->path, r->line, m->content[i].text, strerror(errno));
    return TACIT_OK;
}

tacit_status gate_data_check(const char *path, tacit_error *err)
{
    tacit_dataset d = {0};
    tacit_status status = tacit_dataset_load(&d, path, true, err);
    if (status == TACIT_OK && d.count == 0)
        status = tacit_fail(err, TACIT_BAD_INPUT, "gate: %s: no record", path);
    for (size_t i = 0; status == TACIT_OK && i < d.count; i++)
        for (size_t k = 0; status == TACIT_OK && k < d.record[i].n_messages; k++)
            status = check_message(&d, &d.record[i], &d.record[i].message[k], err);
    tacit_dataset_free(&d);
    return status;
}
