/* The handlers behind gate_methods, one file per group. Contracts are those of gate_method. */
#ifndef TACIT_SERVER_METHODS_H
#define TACIT_SERVER_METHODS_H

#include "proto/wire.pb-c.h"
#include "server/request_gate.h"

/* method_enrol.c */
tacit_status method_hello(gate_call *call, tacit_error *err);
tacit_status method_enrol_prepare(gate_call *call, tacit_error *err);
tacit_status method_enrol_act(gate_call *call, tacit_error *err);
tacit_status method_enrol_finish(gate_call *call, const writer_point *point, tacit_error *err);
void method_enrol_release(gate_call *call);
tacit_status method_renew_prepare(gate_call *call, tacit_error *err);
tacit_status method_renew_act(gate_call *call, tacit_error *err);
void method_renew_release(gate_call *call);

/* method_checkin.c */
tacit_status method_checkin_prepare(gate_call *call, tacit_error *err);
tacit_status method_checkin_act(gate_call *call, tacit_error *err);
tacit_status method_checkin_finish(gate_call *call, const writer_point *point, tacit_error *err);
void method_checkin_release(gate_call *call);

/* method_reserve.c */
tacit_status method_reserve_prepare(gate_call *call, tacit_error *err);
tacit_status method_reserve_act(gate_call *call, tacit_error *err);
tacit_status method_reserve_finish(gate_call *call, const writer_point *point, tacit_error *err);
void method_reserve_release(gate_call *call);
tacit_status method_abandon_prepare(gate_call *call, tacit_error *err);
tacit_status method_abandon_act(gate_call *call, tacit_error *err);
void method_abandon_release(gate_call *call);
tacit_status method_receipt_act(gate_call *call, tacit_error *err);
tacit_status method_receipt_finish(gate_call *call, const writer_point *point, tacit_error *err);
void method_receipt_release(gate_call *call);

/* method_account.c */
tacit_status method_declare_policy_act(gate_call *call, tacit_error *err);
tacit_status method_declare_policy_finish(gate_call *call, const writer_point *point,
                                          tacit_error *err);
tacit_status method_own_entry_act(gate_call *call, tacit_error *err);
tacit_status method_own_entry_finish(gate_call *call, const writer_point *point, tacit_error *err);
void method_account_release(gate_call *call);

/* method_restored.c */
tacit_status method_restored_prepare(gate_call *call, tacit_error *err);
tacit_status method_restored_act(gate_call *call, tacit_error *err);
tacit_status method_restored_finish(gate_call *call, const writer_point *point, tacit_error *err);
void method_restored_release(gate_call *call);

/* method_upload.c */
tacit_status method_upload_begin_prepare(gate_call *call, tacit_error *err);
tacit_status method_upload_begin_act(gate_call *call, tacit_error *err);
void method_upload_begin_release(gate_call *call);
tacit_status method_upload_chunk_prepare(gate_call *call, tacit_error *err);
tacit_status method_upload_commit_prepare(gate_call *call, tacit_error *err);
tacit_status method_upload_commit_act(gate_call *call, tacit_error *err);
void method_upload_commit_release(gate_call *call);

/* method_adapter.c */
tacit_status method_adapter_chunk_prepare(gate_call *call, tacit_error *err);

#endif
