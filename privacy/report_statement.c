/* The guarantee in words, with what it rests on. */
#include "privacy/report.h"

#include "privacy/entry.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DELTA_SUM_MAX 0.01

/* --- what the words are about --- */

typedef struct range {
    double low, high;
    bool any;
} range;

static void widen(range *r, double v)
{
    r->low = r->any ? fmin(r->low, v) : v;
    r->high = r->any ? fmax(r->high, v) : v;
    r->any = true;
}

typedef struct facts {
    range cap, delta, sigma, q, steps;
    double epsilon, epsilon_subject, delta_sum;
    double epsilon_private; /* of the devices whose every round had noise */
    uint32_t devices_per_subject;
    uint64_t by_unit[TACIT_UNIT_DEVICE + 1];
    bool summed_noise; /* a published epsilon is below that against the server */
    /* Largest of the published adapters, in both views; delta of the first. */
    double published, against_server, published_delta;
    uint64_t over_cap, lost, non_private, insecure, skipped;
    uint64_t adaptive; /* rounds whose clip norm follows a quantile */
    uint64_t tree;     /* rounds with tree noise */
    uint64_t add_remove, replace_one, whole, without_noise; /* rounds; whole: of the device unit */
} facts;

static void gather_devices(facts *f, const tacit_audit *a)
{
    for (size_t i = 0; i < a->device_count; i++) {
        const tacit_audit_device *d = &a->devices[i];
        widen(&f->cap, d->cap);
        widen(&f->delta, d->delta);
        f->epsilon = fmax(f->epsilon, report_epsilon(d));
        f->epsilon_private = fmax(f->epsilon_private, d->non_private ? 0 : d->epsilon);
        f->epsilon_subject = fmax(f->epsilon_subject, report_epsilon_subject(d));
        f->delta_sum += d->delta;
        if (d->devices_per_subject > f->devices_per_subject)
            f->devices_per_subject = d->devices_per_subject;
        if (d->unit <= TACIT_UNIT_DEVICE)
            f->by_unit[d->unit]++;
        f->over_cap += d->epsilon > d->cap;
        f->lost += d->lost;
        f->non_private += d->non_private;
        f->insecure += d->insecure;
    }
}

static void gather_rounds(facts *f, const tacit_audit *a)
{
    for (size_t i = 0; i < a->rounds; i++) {
        const tacit_mechanism *m = &a->round_list[i].mechanism;
        if (m->kind == TACIT_MECHANISM_NONE) {
            f->without_noise++;
            continue;
        }
        widen(&f->sigma, tacit_mechanism_noise_multiplier(m));
        f->adaptive += m->quantile_b > 0;
        f->tree += m->kind == TACIT_MECHANISM_TREE_GAUSSIAN;
        widen(&f->q, tacit_sampling_rate(m->q_num));
        widen(&f->steps, m->steps);
        f->whole += m->unit == TACIT_UNIT_DEVICE;
        f->add_remove += m->neighbours == TACIT_ADD_REMOVE;
        f->replace_one += m->neighbours == TACIT_REPLACE_ONE;
    }
}

static void gather_publications(facts *f, const tacit_audit *a)
{
    for (size_t i = 0; i < a->publication_count; i++) {
        const tacit_audit_publication *p = &a->publications[i];
        f->summed_noise = f->summed_noise || p->epsilon_published < p->epsilon_server;
        f->against_server = fmax(f->against_server, p->epsilon_server);
        if (i == 0 || p->epsilon_published >= f->published) {
            f->published = p->epsilon_published;
            f->published_delta = p->delta;
        }
    }
}

static facts gather(const tacit_audit *a)
{
    facts f = {.skipped = 0};
    gather_devices(&f, a);
    gather_rounds(&f, a);
    gather_publications(&f, a);
    for (size_t i = 0; i < a->check_count; i++)
        f.skipped += a->checks[i].outcome == TACIT_AUDIT_SKIPPED;
    return f;
}

/* "3", or "2 to 3". */
static const char *range_text(range r, char out[2 * MARKUP_NUMBER])
{
    char low[MARKUP_NUMBER], high[MARKUP_NUMBER];
    if (!r.any)
        snprintf(out, 2 * MARKUP_NUMBER, "none");
    else if (r.low == r.high)
        markup_number(r.low, out);
    else
        snprintf(out, 2 * MARKUP_NUMBER, "%s to %s", markup_number(r.low, low),
                 markup_number(r.high, high));
    return out;
}

/* --- the fields --- */

typedef void writer(const report *r, const facts *f, char *out);

static void say(char *out, const char *format, ...) TACIT_PRINTF(2, 3);

/* Adds to what the field says already. */
static void say(char *out, const char *format, ...)
{
    size_t used = strlen(out);
    va_list args;
    va_start(args, format);
    vsnprintf(out + used, REPORT_FIELD_TEXT - used, format, args);
    va_end(args);
}

static void claim(const report *r, const facts *f, char *out)
{
    char epsilon[MARKUP_NUMBER], delta[2 * MARKUP_NUMBER];
    if (r->audit->violation_count)
        say(out,
            "This log has %zu violation%s. What follows is what its entries amount to; nobody "
            "should rely on it before each violation is explained. ",
            r->audit->violation_count, r->audit->violation_count == 1 ? "" : "s");
    if (!r->audit->device_count) {
        say(out, "No device is enrolled, so nothing is claimed.");
        return;
    }
    if (f->non_private)
        say(out,
            "Of %llu device%s nothing finite can be said: they took part in rounds without noise, "
            "whose epsilon is infinite. ",
            (unsigned long long)f->non_private, f->non_private == 1 ? "" : "s");
    if (f->non_private == r->audit->device_count)
        return;
    say(out,
        "Over its whole life in this log, all lineages and local training together, each of "
        "the %s%llu devices revealed about any one unit of its data at most what "
        "(epsilon, delta)-differential privacy with epsilon %s at delta %s allows. The accounts "
        "were recomputed from the logged mechanisms, entry by entry; no stated epsilon was taken "
        "on trust.",
        f->non_private ? "other " : "",
        (unsigned long long)(r->audit->device_count - f->non_private),
        markup_number(f->epsilon_private, epsilon), range_text(f->delta, delta));
}

static void parameters(const report *r, const facts *f, char *out)
{
    char cap[2 * MARKUP_NUMBER], delta[2 * MARKUP_NUMBER], epsilon[3][MARKUP_NUMBER],
        published_delta[MARKUP_NUMBER];
    say(out,
        "Against the server, which sees every update: the largest epsilon spent by a device is %s. "
        "Lifetime caps in force: %s. Delta of an account: %s, one for its whole life. Delta summed "
        "over the devices: %.3g%s. ",
        markup_number(f->epsilon, epsilon[0]), range_text(f->cap, cap), range_text(f->delta, delta),
        f->delta_sum,
        f->delta_sum > DELTA_SUM_MAX ? ", above 0.01: that some device is outside its guarantee "
                                       "is no longer negligible"
                                     : "");
    if (f->over_cap)
        say(out, "Above the cap now in force: %llu. ", (unsigned long long)f->over_cap);
    if (r->audit->publication_count)
        say(out,
            "Against those who see published adapters alone: epsilon %s at delta %s for the "
            "costliest "
            "version, over the rounds of its lineage so far; against the server such a series of "
            "rounds comes to at most %s. Who sees adapters of several lineages learns at most what "
            "the account spent.",
            markup_number(f->published, epsilon[1]),
            markup_number(f->published_delta, published_delta),
            markup_number(f->against_server, epsilon[2]));
    else
        say(out, "No adapter was published.");
}

static void unit(const report *r, const facts *f, char *out)
{
    char epsilon[MARKUP_NUMBER];
    (void)r;
    say(out,
        "By the unit that a device's rounds protect (before its first round, that its policy "
        "demands; no device has two): one record, which is one training example: %llu devices; one "
        "subject, "
        "all examples of a patient, driver or trip on the device: %llu; the device, everything on "
        "it: %llu. A guarantee for records says nothing of a person with many of them.",
        (unsigned long long)f->by_unit[TACIT_UNIT_RECORD],
        (unsigned long long)f->by_unit[TACIT_UNIT_SUBJECT],
        (unsigned long long)f->by_unit[TACIT_UNIT_DEVICE]);
    if (f->devices_per_subject > 1)
        say(out,
            " A subject may be on up to %u devices; for one on as many as its device's policy "
            "states, none of which took part in more than that one did, all of them together come "
            "to epsilon %s at most. Of a subject on devices that took part in different things "
            "this says nothing.",
            f->devices_per_subject, markup_number(f->epsilon_subject, epsilon));
    else
        say(out, " Every policy states that one subject is on one device alone.");
}

static void neighbours(const report *r, const facts *f, char *out)
{
    (void)r;
    if (f->add_remove || !f->replace_one)
        say(out, "Add or remove one unit (unbounded): two data sets are neighbours when one is the "
                 "other with one unit more. For the device unit: the data replaced by none. ");
    if (f->replace_one)
        say(out, "In %llu rounds: replace one unit by another (bounded). ",
            (unsigned long long)f->replace_one);
}

static void mechanism(const report *r, const facts *f, char *out)
{
    char sigma[2 * MARKUP_NUMBER], q[2 * MARKUP_NUMBER], steps[2 * MARKUP_NUMBER];
    (void)r;
    if (f->whole + f->tree < f->add_remove + f->replace_one || f->whole + f->tree == 0)
        say(out,
            "Differentially private stochastic gradient descent on the device: Poisson sampling of "
            "units, one gradient a unit clipped as a whole in L2 and truncated to an integer grid, "
            "summed, discrete Gaussian noise on the same grid. ");
    if (f->whole)
        say(out,
            "Rounds of the device unit (%llu): local steps without noise, then the whole change of "
            "the adapter clipped in L2 and noised once on that grid, without sampling. ",
            (unsigned long long)f->whole);
    if (f->tree)
        say(out,
            "Rounds with tree noise (%llu): no sampling; each unit enters one step in as many as "
            "the table of rounds says, which one follows from who it is. Its gradient is clipped "
            "in "
            "L2 onto that grid, and the discrete Gaussian noise is correlated over a round's steps "
            "by a binary tree, so that sums of steps carry little of it. ",
            (unsigned long long)f->tree);
    if (f->adaptive)
        say(out,
            "In %llu rounds the clip norm follows a quantile of the gradient norms, by a count "
            "that is noised itself; its cost is part of each step's noise multiplier. ",
            (unsigned long long)f->adaptive);
    if (f->sigma.any)
        say(out,
            "Noise multiplier (standard deviation over the clip norm): %s. Sampling rate: %s. "
            "Steps of a round: %s. Each round's own numbers are in the table of rounds; what a "
            "device "
            "trained alone is charged too, and in the JSON ('charged' of each device). ",
            range_text(f->sigma, sigma), range_text(f->q, q), range_text(f->steps, steps));
    if (f->without_noise)
        say(out, "Rounds of mechanism none, without clipping or noise: %llu.",
            (unsigned long long)f->without_noise);
}

static void accounting(const report *r, const facts *f, char *out)
{
    (void)r;
    say(out, TACIT_ACCOUNTANT_VERSION
        ": the Gaussian, Poisson-subsampled where q is below 1, rounded up. Over time everything "
        "that a device reserves adds up in its one account, whatever lineage it is for. "
        "One schedule, fixed in the log before its first reserve, is read by its privacy loss "
        "distribution; from the second on everything is read by Renyi differential privacy at one "
        "order fixed when the account was opened, which stays valid for plans that depend on "
        "earlier results. The cost of a round is charged in full before its first gradient is "
        "computed and never given back, also where no update followed. The distance of the noise "
        "sampler from the exact law is taken off delta. ");
    if (f->tree)
        say(out,
            "A round with tree noise counts as that many runs of the Gaussian without sampling: "
            "the most that the squared number of one unit's steps in a node adds up to over the "
            "nodes of the tree. ");
    say(out,
        "Over devices: a unit on one device costs that device's epsilon, however large the fleet; "
        "a subject on several costs the composition of as many accounts, which the unit of privacy "
        "states.");
}

static void hyper_parameters(const report *r, const facts *f, char *out)
{
    (void)f;
    say(out,
        "Clip norm, noise, sampling rate, steps and number of rounds of a lineage were logged "
        "before its first reserve (%zu schedules), so nothing that the lineage showed chose them, "
        "and a round follows its schedule or is skipped. They may have been chosen on what earlier "
        "lineages or local training gave out; those are charged to the same account. Learning "
        "rates are no part of the mechanism: they may follow any earlier result at no further "
        "cost, and so may whom a plan asks, as far as the server's view goes. How the first "
        "schedule was chosen no log shows: trying values "
        "on private data outside this log would cost what it does not count. A candidate adapter "
        "is accepted or refused on data of the server's own.",
        r->audit->schedule_count);
}

static void released(const report *r, const facts *f, char *out)
{
    (void)r;
    say(out,
        "To the server, for each round that a device takes part in: one sealed vector, %s, and the "
        "signed entries of its account (what it reserved, spent or abandoned, and when), and at "
        "check-ins which adapters it fetched. To the "
        "devices of the fleet and whoever they show it to: the mean of the accepted vectors as an "
        "adapter file, with its manifest (both epsilons, and the score on the server's own data). "
        "To the auditor: this log. Not released: records, gradients, losses, counts of examples, "
        "the sampled units, the noise.",
        f->without_noise ? "clipped and noised but in the rounds of mechanism none"
                         : "clipped and noised before it leaves");
}

static void trust(const report *r, const facts *f, char *out)
{
    (void)r;
    say(out,
        "Local: noise is added on the device before anything leaves it, so neither the server, its "
        "operator nor whoever reads the network or a published adapter is trusted with data. "
        "Trusted are the device's own software and source of randomness with clipping, sampling "
        "and noise; the owner of the data with which records are one subject and on how many "
        "devices it is; whoever holds a device's policy key with raising its caps. The server is "
        "trusted with running at all, with whom it asks and with what it publishes, not with the "
        "log: devices sign and chain their entries, their receipts show what it once promised, and "
        "a witness can vouch that there is one log.");
    if (f->without_noise)
        say(out, " In rounds without noise the server is trusted with whatever an update reveals.");
}

static void assumptions(const report *r, const facts *f, char *out)
{
    (void)r;
    say(out,
        "That devices ran what they reserved, with randomness nobody else can predict. That a "
        "subject's records carry its id, and that it is on no more devices than the policy says. "
        "That an account was not set back together with its folder in collusion with the server. "
        "That SHA-256, Ed25519, ChaCha20 and the sealing of updates hold. That an account was the "
        "only way by which its data were used: a second folder or another product on the same "
        "data has an account of its own or none.");
    if (f->summed_noise)
        say(out,
            " For the lower published epsilon also: that no more of the summed devices collude "
            "with a recipient than the plan assumes.");
}

static void verification(const report *r, const facts *f, char *out)
{
    (void)r;
    say(out,
        "Checked against the log, each difference being a violation: every account and both "
        "epsilons of every publication, recomputed; that each reserve equals its plan and each "
        "plan its schedule; that each policy was kept. Not verified by it: that units were "
        "sampled, gradients clipped and noise drawn as reserved; a log has numbers, not vectors. "
        "For that there are the device's source code and its tests of the "
        "noise's exact law, and an empirical lower bound on epsilon from planted canaries "
        "(tacit-client train --canaries, tacit-audit canary), which can refute a claim and not "
        "prove one. ");
    if (f->insecure)
        say(out, "Devices that drew noise from a test seed, which anybody can repeat: %llu.",
            (unsigned long long)f->insecure);
    else
        say(out, "No device said that it drew noise from a test seed.");
}

static void protected_from(const report *r, const facts *f, char *out)
{
    (void)r;
    say(out,
        "The server and its operator learn about one unit at most what the epsilon of its device "
        "allows; recipients of an adapter at most the published epsilon of its version (both are "
        "in the table of publications, with the rule that gave them). Not hidden are facts about "
        "groups that hold with or without any one unit (that some condition is common in a fleet, "
        "say), which device took part when, that it takes part at all, its policy, and what it has "
        "left.");
    if (f->summed_noise)
        say(out,
            " Where the published epsilon is the lower one it counts on the noise of the "
            "other devices in the sum, less the colluders that the plan assumes, and so on the "
            "server not to pass off devices of its own as theirs.");
}

static void security(const report *r, const facts *f, char *out)
{
    say(out,
        "Entries are signed (Ed25519) and stand in a Merkle tree (RFC 6962) under a signed "
        "checkpoint of %llu entries. Receipts of devices held against it: %llu. Checks skipped: "
        "%llu, each with its reason below. %s What is stored on devices, who may log in to the "
        "server, and how keys are kept is outside a log.",
        (unsigned long long)r->audit->checkpoint.size, (unsigned long long)r->audit->receipts,
        (unsigned long long)f->skipped,
        r->audit->witnessed ? "A witness cosigned it as part of one log."
                            : "No witness cosigned the checkpoint, so a view of the log that was "
                              "made for you alone can be found by receipts only.");
}

static void side_channels(const report *r, const facts *f, char *out)
{
    (void)r;
    (void)f;
    say(out,
        "Rounds are built to be blind to the data: the plan's number of steps whatever a device "
        "holds, no early stop, uploads at a time that follows from the plan, no count and no loss "
        "in any message. This is a property of the software on the devices; the log shows the "
        "plans and not that they were kept.");
}

static void collection(const report *r, const facts *f, char *out)
{
    (void)r;
    (void)f;
    say(out,
        "Raw data stays on the devices. The log holds no data, gradient, update or name: devices "
        "are pseudonyms. Differential privacy limits what leaves a device by training; it does not "
        "protect the records where they are collected and stored.");
}

static void utility(const report *r, const facts *f, char *out)
{
    const tacit_audit *a = r->audit;
    const tacit_audit_publication *last =
        a->publication_count ? &a->publications[a->publication_count - 1] : NULL;
    (void)f;
    if (last && isfinite(last->accuracy))
        say(out,
            "For the newest publication, version %llu, the server states an accuracy of %.4g on "
            "its "
            "own held-out data; an auditor cannot check that. ",
            (unsigned long long)last->version, last->accuracy);
    say(out, "Noise and clipping can cost rare groups more accuracy than common ones; a log says "
             "nothing about that.");
}

static const struct {
    const char *key, *title;
    writer *write;
} fields_of_statement[] = {
    {"claim", "Claim", claim},
    {"privacy_parameters", "Privacy parameters", parameters},
    {"unit_of_privacy", "Unit of privacy", unit},
    {"neighbouring_relation", "Neighbouring relation", neighbours},
    {"mechanism", "Mechanism", mechanism},
    {"released", "What is released", released},
    {"composition", "Composition over time and devices", accounting},
    {"hyper_parameters", "Choice of parameters", hyper_parameters},
    {"verification", "What was verified", verification},
    {"utility", "Utility and bias", utility},
    {"trust_model", "Trust model", trust},
    {"assumptions", "Assumptions", assumptions},
    {"protected_from", "Protected from whom", protected_from},
    {"security", "Integrity and access", security},
    {"side_channels", "Side channels", side_channels},
    {"data_collection", "Collection of data", collection},
};

size_t report_statement(const report *r, report_field fields[REPORT_FIELDS_MAX])
{
    const size_t n = sizeof fields_of_statement / sizeof fields_of_statement[0];
    const facts f = gather(r->audit);
    for (size_t i = 0; i < n; i++) {
        fields[i] = (report_field){fields_of_statement[i].key, fields_of_statement[i].title, ""};
        fields_of_statement[i].write(r, &f, fields[i].text);
    }
    return n;
}

/* --- warnings --- */

size_t report_warnings(const report *r, char lines[REPORT_WARNINGS_MAX][REPORT_FIELD_TEXT])
{
    const facts f = gather(r->audit);
    size_t n = 0;
    if (f.delta_sum > DELTA_SUM_MAX)
        snprintf(lines[n++], REPORT_FIELD_TEXT,
                 "delta summed over the devices is %.3g, above 0.01: some device may well be "
                 "outside its guarantee",
                 f.delta_sum);
    if (f.insecure)
        snprintf(lines[n++], REPORT_FIELD_TEXT,
                 "devices that used a test seed, whose noise can be predicted: %llu",
                 (unsigned long long)f.insecure);
    if (f.non_private)
        snprintf(lines[n++], REPORT_FIELD_TEXT,
                 "devices with rounds without noise, whose epsilon is infinite: %llu",
                 (unsigned long long)f.non_private);
    if (f.lost)
        snprintf(lines[n++], REPORT_FIELD_TEXT,
                 "devices whose account was lost and counts as spent: %llu",
                 (unsigned long long)f.lost);
    if (f.over_cap)
        snprintf(lines[n++], REPORT_FIELD_TEXT,
                 "devices that spent more than the cap now in force: %llu",
                 (unsigned long long)f.over_cap);
    if (!r->audit->receipts)
        snprintf(lines[n++], REPORT_FIELD_TEXT,
                 "no receipt of a device was held against the log (--receipt FILE)");
    return n;
}
