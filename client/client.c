#include "client/client.h"

#include "client/pinned_policy.h"
#include "common/file.h"
#include "common/log.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- paths --- */

tacit_status client_path(const client *c, char out[CLIENT_PATH_MAX], const char *folder,
                         const char *name, tacit_error *err)
{
    char part[CLIENT_PATH_MAX];
    if (!folder)
        return tacit_file_join(out, CLIENT_PATH_MAX, c->dir, name, err);
    tacit_status status = tacit_file_join(part, sizeof part, folder, name, err);
    return status == TACIT_OK ? tacit_file_join(out, CLIENT_PATH_MAX, c->dir, part, err) : status;
}

tacit_status client_hex_path(const client *c, char out[CLIENT_PATH_MAX], const char *folder,
                             const uint8_t *id, size_t size, const char *ending, tacit_error *err)
{
    char hex[2 * TACIT_DIGEST_BYTES + 1], name[128];
    tacit_hex(hex, id, size);
    snprintf(name, sizeof name, "%s.%s", hex, ending);
    return client_path(c, out, folder, name, err);
}

bool client_stopped(const client *c)
{
    return c->stop && *c->stop;
}

/* --- opening --- */

static tacit_status take_lock(client *c, tacit_error *err)
{
    char path[CLIENT_PATH_MAX];
    tacit_status status = client_path(c, path, NULL, "lock", err);
    if (status == TACIT_OK)
        status = tacit_file_lock(path, &c->lock, err);
    if (status == TACIT_CONFLICT)
        return tacit_fail(err, status,
                          "%s: another tacit-client works on this folder; stop it first", c->dir);
    return status;
}

static tacit_status make_folders(const client *c, tacit_error *err)
{
    static const char *const folders[] = {"identity", "adapters", "rounds", "receipts"};
    char path[CLIENT_PATH_MAX];
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        tacit_status status = client_path(c, path, NULL, folders[i], err);
        if (status == TACIT_OK)
            status = tacit_file_make_dir(path, 0700, err);
        if (status != TACIT_OK)
            return status;
    }
    return TACIT_OK;
}

/* Keys and account that exist; what is missing stays NULL. */
static tacit_status open_keys(client *c, tacit_error *err)
{
    char path[CLIENT_PATH_MAX];
    tacit_status status = client_path(c, path, "identity", "device.key", err);
    if (status == TACIT_OK)
        status = tacit_identity_load(&c->identity, path, err);
    if (status != TACIT_OK)
        return status == TACIT_NOT_FOUND ? TACIT_OK : status;
    status = tacit_account_open(&c->account, c->db, c->identity, err);
    if (status != TACIT_NOT_FOUND)
        return status;
    tacit_log_warn("%s: the keys are there, the account is not: its budget counts as spent",
                   c->dir);
    status = tacit_account_create(c->db, &c->config.policy, true, c->identity, err);
    return status == TACIT_OK ? tacit_account_open(&c->account, c->db, c->identity, err) : status;
}

static tacit_status open_enrolment(client *c, client_need need, tacit_error *err)
{
    tacit_status status = client_enrolment_get(c->db, &c->enrolment, err);
    c->enrolled = status == TACIT_OK && c->identity && c->config.server && c->config.enrol;
    if (status == TACIT_NOT_FOUND)
        status = TACIT_OK;
    if (status == TACIT_OK && need == CLIENT_FEDERATES && !c->enrolled)
        status =
            tacit_fail(err, TACIT_CONFLICT,
                       "%s: this device is not enrolled; run 'tacit-client enroll' first", c->dir);
    return status;
}

/* Who only looks gets a copy in memory, on which opening may do all that it does. */
static tacit_status open_database(client *c, client_need need, tacit_error *err)
{
    char path[CLIENT_PATH_MAX];
    tacit_status status = need == CLIENT_READS ? TACIT_OK : make_folders(c, err);
    if (status == TACIT_OK)
        status = client_path(c, path, NULL, "client.db", err);
    if (status == TACIT_OK)
        status = need == CLIENT_READS ? tacit_database_open_copy(&c->db, path, err)
                                      : tacit_database_open(&c->db, path, err);
    return status == TACIT_OK ? client_store_open(c->db, err) : status;
}

tacit_status client_open(client **out, const char *dir, client_need need, tacit_error *err)
{
    tacit_status status;
    *out = NULL;
    if (strlen(dir) >= CLIENT_PATH_MAX / 2)
        return tacit_fail(err, TACIT_USAGE, "%s: the path is too long", dir);
    client *c = calloc(1, sizeof *c);
    if (!c)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory");
    c->lock = -1;
    memcpy(c->dir, dir, strlen(dir) + 1);
    TACIT_TRY(tacit_status_of_input(client_config_load(&c->config, dir, err), err), fail);
    c->yaml_policy = c->config.policy;
    if (need != CLIENT_READS)
        TACIT_TRY(take_lock(c, err), fail);
    TACIT_TRY(open_database(c, need, err), fail);
    TACIT_TRY(open_keys(c, err), fail);
    TACIT_TRY(open_enrolment(c, need, err), fail);
    TACIT_TRY(pinned_policy_stand_in(c, err), fail);
    *out = c;
    return TACIT_OK;
fail:
    client_close(c);
    return status;
}

void client_close(client *c)
{
    if (!c)
        return;
    tacit_account_close(c->account);
    tacit_identity_free(c->identity);
    tacit_database_close(c->db);
    client_config_free(&c->config);
    if (c->lock >= 0)
        close(c->lock);
    free(c);
}

/* --- identity and account --- */

/* The account is there before the keys: keys without an account are keys whose account is lost. */
tacit_status client_make_account(client *c, tacit_error *err)
{
    char path[CLIENT_PATH_MAX];
    if (c->account)
        return TACIT_OK;
    tacit_status status = tacit_account_create(c->db, &c->config.policy, false, NULL, err);
    if (status == TACIT_CONFLICT) /* made, then interrupted before the keys */
        status = TACIT_OK;
    if (status == TACIT_OK)
        status = client_path(c, path, "identity", "device.key", err);
    if (status == TACIT_OK)
        status = tacit_identity_create(&c->identity, path, err);
    return status == TACIT_OK ? tacit_account_open(&c->account, c->db, c->identity, err) : status;
}

tacit_status client_replace_identity(client *c, tacit_error *err)
{
    char path[CLIENT_PATH_MAX];
    tacit_account_status now;
    tacit_status status = tacit_account_status_get(c->account, &now, err);
    if (status == TACIT_OK && (now.next_sequence > 1 || now.lost))
        status = tacit_fail(err, TACIT_CONFLICT,
                            "%s: the keys have signed reserves and cannot be replaced; purge the "
                            "folder to begin anew",
                            c->dir);
    if (status == TACIT_OK)
        status = client_path(c, path, "identity", "device.key", err);
    if (status != TACIT_OK)
        return status;
    tacit_account_close(c->account);
    tacit_identity_free(c->identity);
    c->account = NULL;
    c->identity = NULL;
    if (unlink(path) != 0 && errno != ENOENT)
        return tacit_file_fail(err, path, "remove");
    return client_make_account(c, err);
}

static tacit_status ends_with_loss(client *c, uint64_t sequence, bool *ends, tacit_error *err)
{
    tacit_reservation last;
    tacit_entry entry;
    *ends = false;
    if (sequence == 0)
        return TACIT_OK;
    tacit_status status = tacit_account_entry(c->account, sequence, &last, err);
    if (status != TACIT_OK)
        return status == TACIT_NOT_FOUND ? TACIT_OK : status;
    status = tacit_entry_read(&entry, last.entry, last.entry_size, err);
    *ends = status == TACIT_OK && entry.entry->body_case == TACIT__ENTRY__BODY_ACCOUNT_LOST;
    tacit_entry_close(&entry);
    tacit_reservation_free(&last);
    return status;
}

tacit_status client_declare_lost(client *c, tacit_error *err)
{
    tacit_account_status now;
    tacit_reservation entry;
    bool told;
    tacit_status status = tacit_account_status_get(c->account, &now, err);
    if (status != TACIT_OK || !now.lost || !c->enrolled)
        return status;
    tacit_log_error("the account is lost (%s): its budget counts as spent, nothing is trained",
                    now.lost_reason);
    status = ends_with_loss(c, now.next_sequence - 1, &told, err);
    if (status != TACIT_OK || told)
        return status;
    status = tacit_account_lost_entry(c->account, c->enrolment.device, 0, NULL, &entry, err);
    tacit_reservation_free(&entry);
    return status;
}

static bool policies_equal(const tacit_policy *a, const tacit_policy *b)
{
    return !tacit_policy_weakens(a, b) && !tacit_policy_weakens(b, a);
}

/* What the owner wants, under a cap that the operator lowered since the owner last wrote one. */
static tacit_status wanted_policy(client *c, const tacit_policy *now, tacit_policy *out,
                                  tacit_error *err)
{
    double written = 0;
    *out = c->config.policy;
    tacit_status status = client_owner_cap_get(c->db, &written, err);
    if (status == TACIT_OK && written == out->epsilon_cap && now->epsilon_cap < written)
        out->epsilon_cap = now->epsilon_cap;
    return status;
}

static tacit_status put_policy(client *c, const tacit_policy *wanted, tacit_error *err)
{
    tacit_status status = tacit_database_begin(c->db, err);
    if (status != TACIT_OK)
        return status;
    status = tacit_account_set_policy(c->account, wanted, err);
    if (status == TACIT_OK)
        status = client_owner_cap_put(c->db, c->config.policy.epsilon_cap, err);
    if (status == TACIT_OK)
        status = tacit_database_commit(c->db, err);
    if (status != TACIT_OK)
        tacit_database_rollback(c->db);
    return status;
}

tacit_status client_apply_policy(client *c, tacit_error *err)
{
    tacit_policy declared, wanted;
    tacit_account_status now;
    tacit_status status = tacit_account_status_get(c->account, &now, err);
    if (status == TACIT_OK && c->enrolled)
        status = tacit_policy_unpack(&declared, c->enrolment.policy, c->enrolment.policy_size, err);
    if (status == TACIT_OK && c->enrolled && tacit_policy_weakens(&declared, &c->config.policy))
        status = tacit_fail(err, TACIT_REFUSED,
                            "%s/client.yaml: the policy allows more than this device declared "
                            "last; tighten it again, or declare it: 'tacit-client budget "
                            "--declare --dir %s'",
                            c->dir, c->dir);
    if (status == TACIT_OK)
        status = wanted_policy(c, &now.policy, &wanted, err);
    if (status == TACIT_OK)
        status = put_policy(c, &wanted, err);
    if (status == TACIT_OK && !policies_equal(&now.policy, &wanted))
        tacit_log_info("policy: epsilon %.6g, noise at least %.6g are in force now",
                       wanted.epsilon_cap, wanted.minimum_noise_multiplier);
    return status;
}

/* --- the model --- */

static tacit_status add_stat(const char *path, char *text, size_t size, tacit_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0 || access(path, R_OK) != 0)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: cannot read the model: %s", path,
                          strerror(errno));
    snprintf(text, size, "%s\n%llu %llu %lld %lld.%09ld", path, (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino, (long long)st.st_size, (long long)st.st_mtim.tv_sec,
             st.st_mtim.tv_nsec);
    return TACIT_OK;
}

/* Names the files' state: paths, inodes, sizes and times. */
static tacit_status fingerprint_model(const client *c, uint8_t out[TACIT_DIGEST_BYTES],
                                      tacit_error *err)
{
    char text[5][CLIENT_PATH_MAX + 128];
    tacit_span part[5];
    size_t n = 1 + c->config.model_mmproj.count;
    for (size_t i = 0; i < n && i < 5; i++) {
        const char *path = i ? c->config.model_mmproj.item[i - 1] : c->config.model_text;
        tacit_status status = add_stat(path, text[i], sizeof text[i], err);
        if (status != TACIT_OK)
            return status;
        part[i] = (tacit_span){(const uint8_t *)text[i], strlen(text[i])};
    }
    tacit_digest_parts(out, "tacit-model-files-1", part, n);
    return TACIT_OK;
}

/* Without a chat template no record becomes an example: budget would be spent on nothing. */
static tacit_status check_chat(const client *c, const tacit_model *m, tacit_error *err)
{
    tacit_error why;
    tacit_status status = tacit_model_check_chat(m, &why);
    if (status == TACIT_OK || status == TACIT_NO_MEMORY)
        return status == TACIT_OK ? status : tacit_fail(err, status, "%s", why.message);
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: %s; devices take the template of the model's file, so that all of a "
                      "federation have the same: name a file with one of those in client.yaml",
                      c->config.model_text, why.message);
}

static tacit_status load_with(const client *c, const uint8_t *known, tacit_model **out,
                              tacit_error *err)
{
    tacit_status status = tacit_model_load(out, c->config.model_text,
                                           (const char *const *)c->config.model_mmproj.item,
                                           c->config.model_mmproj.count, known, err);
    if (status == TACIT_OK)
        status = check_chat(c, *out, err);
    if (status != TACIT_OK) {
        tacit_model_free(*out);
        *out = NULL;
    }
    return status;
}

tacit_status client_load_model(client *c, tacit_model **out, tacit_error *err)
{
    uint8_t fingerprint[TACIT_DIGEST_BYTES], digest[TACIT_DIGEST_BYTES];
    *out = NULL;
    tacit_status status = fingerprint_model(c, fingerprint, err);
    if (status != TACIT_OK)
        return status;
    status = client_base_get(c->db, fingerprint, digest, err);
    if (status == TACIT_OK)
        return load_with(c, digest, out, err);
    if (status != TACIT_NOT_FOUND)
        return status;
    status = load_with(c, NULL, out, err);
    if (status == TACIT_OK)
        status = client_base_put(c->db, fingerprint, tacit_model_base_digest(*out), err);
    if (status != TACIT_OK) {
        tacit_model_free(*out);
        *out = NULL;
    }
    return status;
}

tacit_status client_base_digest(client *c, uint8_t digest[TACIT_DIGEST_BYTES], tacit_error *err)
{
    uint8_t fingerprint[TACIT_DIGEST_BYTES];
    tacit_model *model;
    tacit_status status = fingerprint_model(c, fingerprint, err);
    if (status == TACIT_OK)
        status = client_base_get(c->db, fingerprint, digest, err);
    if (status != TACIT_NOT_FOUND)
        return status;
    status = client_load_model(c, &model, err);
    if (status != TACIT_OK)
        return status;
    memcpy(digest, tacit_model_base_digest(model), TACIT_DIGEST_BYTES);
    tacit_model_free(model);
    return TACIT_OK;
}

tacit_status client_check_files(client *c, uint8_t digest[TACIT_DIGEST_BYTES], tacit_error *err)
{
    if (access(c->config.data, R_OK) != 0)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: cannot read the data that %s/client.yaml names; an empty file is "
                          "fine",
                          c->config.data, c->dir);
    return client_base_digest(c, digest, err);
}
