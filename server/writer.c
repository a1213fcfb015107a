#include "server/writer.h"

#include "common/log.h"

#include <pthread.h>
#include <stdlib.h>

#define GROUP_MAX 64 /* jobs of one commit */

typedef struct job {
    writer_act act;
    writer_finish finish;
    void *ctx;
    tacit_status status;
    tacit_error *err;
    bool done;
    struct job *next;
} job;

struct server_writer {
    tacit_database *db;
    writer_sign sign;
    void *sign_ctx;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    job *first, *last;
    bool stopping;
    bool tidy; /* the writer's thread alone */
};

/* Takes at most GROUP_MAX jobs off the queue, waiting for the first; 0 means stop. */
static size_t take_group(server_writer *w, job *group[GROUP_MAX])
{
    size_t n = 0;
    pthread_mutex_lock(&w->lock);
    while (!w->first && !w->stopping)
        pthread_cond_wait(&w->work, &w->lock);
    while (w->first && n < GROUP_MAX) {
        group[n++] = w->first;
        w->first = w->first->next;
    }
    if (!w->first)
        w->last = NULL;
    pthread_mutex_unlock(&w->lock);
    return n;
}

static void act_in_mark(server_writer *w, job *j)
{
    j->status = tacit_database_mark(w->db, j->err);
    if (j->status != TACIT_OK)
        return;
    j->status = j->act(j->ctx, j->err);
    if (j->status == TACIT_OK)
        j->status = tacit_database_keep(w->db, j->err);
    else
        tacit_database_undo(w->db);
}

static void fail_group(job *group[], size_t n, const tacit_error *why)
{
    for (size_t i = 0; i < n; i++)
        if (group[i]->status == TACIT_OK)
            group[i]->status = tacit_fail(group[i]->err, why->status, "%s", why->message);
}

/* Signs, lets the jobs read, commits. A failure here fails every job that had succeeded. */
static tacit_status close_group(server_writer *w, job *group[], size_t n, tacit_error *why)
{
    char note[TACIT_CHECKPOINT_MAX];
    writer_point point = {.checkpoint = note};
    tacit_status finished[GROUP_MAX] = {TACIT_OK};
    tacit_status status = w->sign(w->sign_ctx, note, &point.size, why);
    if (status != TACIT_OK)
        return status;
    for (size_t i = 0; i < n; i++)
        if (group[i]->status == TACIT_OK && group[i]->finish)
            finished[i] = group[i]->finish(group[i]->ctx, &point, group[i]->err);
    status = tacit_database_commit(w->db, why);
    for (size_t i = 0; status == TACIT_OK && i < n; i++)
        if (finished[i] != TACIT_OK)
            group[i]->status = finished[i];
    return status;
}

static void run_group(server_writer *w, job *group[], size_t n)
{
    tacit_error why = {0};
    tacit_status status = tacit_database_begin(w->db, &why);
    for (size_t i = 0; i < n && status == TACIT_OK; i++)
        act_in_mark(w, group[i]);
    if (status == TACIT_OK)
        status = close_group(w, group, n, &why);
    if (status != TACIT_OK) {
        tacit_database_rollback(w->db);
        tacit_log_error("nothing of %zu requests was stored: %s", n, why.message);
        fail_group(group, n, &why);
    }
}

void writer_tidy(server_writer *w)
{
    w->tidy = true;
}

static void tidy_up(server_writer *w)
{
    tacit_error err;
    if (!w->tidy)
        return;
    w->tidy = false;
    if (tacit_database_run(w->db, "PRAGMA wal_checkpoint(TRUNCATE)", &err) != TACIT_OK)
        tacit_log_warn("the write-ahead log is not truncated: %s", err.message);
}

static void *writer_main(void *arg)
{
    server_writer *w = arg;
    job *group[GROUP_MAX];
    size_t n;
    while ((n = take_group(w, group)) > 0) {
        run_group(w, group, n);
        tidy_up(w);
        pthread_mutex_lock(&w->lock);
        for (size_t i = 0; i < n; i++)
            group[i]->done = true;
        pthread_cond_broadcast(&w->done);
        pthread_mutex_unlock(&w->lock);
    }
    return NULL;
}

tacit_status writer_start(server_writer **out, tacit_database *db, writer_sign sign, void *sign_ctx,
                          tacit_error *err)
{
    server_writer *w = calloc(1, sizeof *w);
    if (!w)
        return tacit_fail(err, TACIT_NO_MEMORY, "writer: no memory");
    w->db = db;
    w->sign = sign;
    w->sign_ctx = sign_ctx;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    pthread_cond_init(&w->done, NULL);
    if (pthread_create(&w->thread, NULL, writer_main, w) != 0) {
        free(w);
        return tacit_fail(err, TACIT_FAILED, "writer: cannot start a thread");
    }
    *out = w;
    return TACIT_OK;
}

tacit_status writer_run(server_writer *w, writer_act act, writer_finish finish, void *ctx,
                        tacit_error *err)
{
    job j = {.act = act, .finish = finish, .ctx = ctx, .err = err};
    pthread_mutex_lock(&w->lock);
    if (w->stopping) {
        pthread_mutex_unlock(&w->lock);
        return tacit_fail(err, TACIT_AGAIN, "the server is stopping; ask again later");
    }
    if (w->last)
        w->last->next = &j;
    else
        w->first = &j;
    w->last = &j;
    pthread_cond_signal(&w->work);
    while (!j.done)
        pthread_cond_wait(&w->done, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return j.status;
}

void writer_stop(server_writer *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->work);
    pthread_cond_destroy(&w->done);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
