#!/usr/bin/env python3
"""Does the simulation find defects? Each mutation is one small defect put into ps/, worker/ or net/;
the simulation must fail on it. Copies the tree, builds, and for each mutation patches one file,
builds what that needs, and runs seeds until an oracle (or an assertion of ours) objects.

    tests/sim/mutations.py [--work DIR] [--seeds N] [--only TEXT] [--quick]
    tests/sim/mutations.py --check-apply

Prints mutation, what found it, and how many seeds that took; exits 1 if one survives. --quick takes
one mutation per oracle. --work keeps the copy and its build for the next time. --check-apply builds
and runs nothing: it prints which mutations the source has outgrown, and exits 1 if there is one.
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHUNK = 50  # seeds of one run of the program
SECONDS_MAX = 240  # of one mutation
QUICK = {"a view is filled in the buffer that its reader holds", "replays are carried out again", "ssp admits one step early", "bsp commits at arrival",
         "a step's deadline is not armed", "credit is not given back", "sessions end with their "
         "connection", "dpdk: what finds no room is acknowledged",
         "strangers: an answer between the address families is built",
         "disks: a restored session has no last write", "disks: a file is not synced",
         "disks: the checksum of a block is not looked at",
         "disks: slots are not loaded", "disks: other numbers: the last shard's file is not read",
         "disks: nobody is told of a checkpoint that failed",
         "replicas: replies do not wait for the backup", "replicas: epochs are not kept",
         "replicas: a take-over gives nobody a lease",
         "moves: what is not in sync becomes the primary", "moves: drains do not end",
         "link: a long frame has ten seconds in total",
         "transfer: a WRITE is over when it is sent", "transfer: fences are not waited for",
         "transfer: a batch's deadline is not armed",
         "transfer: unregister does not wait for users",
         "transfer: a posted WRITE is over before its FLUSH",
         "transfer: posted WRITEs of a lost lane are not fenced",
         "transfer: a removed region is forgotten at once",
         "transfer: slices of a lost lane fail", "transfer: the limit on sent bytes is not kept",
         "transfer: idle lanes stay open", "transfer: leases are not renewed",
         "objects: a get ends before its last block", "objects: a number is given twice",
         "objects: FIND finds the oldest version", "objects: withdrawn memory stays registered",
         "objects: a fetch's deadline is not armed", "objects: nobody is asked for more sources",
         "objects: leases do not end", "objects: slots are not given back",
         "serve: deadlines at a worker are not kept", "serve: outputs that do not fit are not written",
         "serve: a worker that cannot be reached is forgotten",
         "serve: the answer names the newest version",
         "serve: layers are computed before their bytes are there", "serve: views stay open",
         "publish: a version lacks shards",
         "policies: evictions are not logged", "policies: rows are not protected",
         "policies: the limit of memory is not kept",
         "policies: an incremental checkpoint does not list what was evicted",
         "policies: evicted rows are published", "policies: a find creates rows",
         "policies: the rows of a dropped table stay", "policies: a scan skips a row between two messages",
         "policies: a key that waits gets its row one push early",
         "elections: a write does not compare the key's value",
         "elections: a lease counts from the answer to its renewal",
         "crowd: the first pause is not spread",
         "crowd: a coordinator says the same spread to any number of members"}

# name, file, what stands there (once), what shall stand there
MUTATIONS = [
    # Views.
    ("a view is filled in the buffer that its reader holds", "reactor/view.c",
     "struct sl_view_buffer *into = view->buffers[number % 2];",
     "struct sl_view_buffer *into = view->buffers[(number + 1) % 2];"),
    ("a view is published before its last slice", "reactor/view.c",
     "view->slice++)) {", "view->slice++) || view->slice == 8) {"),
    ("slices of a view begin again", "reactor/view.c",
     "view->slice++)) {", "view->slice)) {"),
    ("a view begins where the last one ended", "ps/shard/view.c",
     "        view->table_count = view->next_table = view->next_worker",
     "        view->table_count = view->next_worker"),
    # Rates of pushes.
    ("a push that waits for its iteration has no rate", "ps/shard/push.c",
     "    buffered->rate = sl_rate_from_bits(section->command);\n", ""),
    ("disks: a buffered push is restored without its rate", "ps/shard/load_clocks.c",
     "    load->buffered->rate = head->rate;\n", ""),
    # Values in another precision.
    ("a row behind a repeated key is not moved", "ps/shard/push.c",
     "request->push.sums != NULL && request->push.sums",
     "request->push.sums != NULL && request->view.encoded == NULL &&\n        request->push.sums"),
    ("encoded values of a range begin anew in each block", "ps/shard/push.c",
     "request->view.encoded,\n                                     request->done, count, widened",
     "request->view.encoded, 0, count,\n                                     widened"),
    # Assigns.
    ("disks: an assign keeps the slots", "ps/table/sparse_table.c",
     "        memset(record->values + dim, 0, slot_bytes);\n        sparse_table_init_slots(table, record->values + dim);\n", ""),
    ("disks: incremental checkpoints lack what was assigned", "ps/table/sparse_table.c",
     "        record->last_step = (uint32_t)step;\n        record->count = 0;",
     "        record->last_step = record->last_step + (step == 0);\n        record->count = 0;"),
    # Replies sent straight from the table.
    ("values that found no room count as sent", "ps/server/reply_chunks.c",
     "sl_shard_pass_values(shard, work, taken - header_taken - unit_taken);",
     "sl_shard_pass_values(shard, work, (taken - header_taken + UNIT_BYTES - 1) / UNIT_BYTES * "
     "UNIT_BYTES);"),
    ("the rest of a value that was cut is sent from its start", "ps/server/reply_chunks.c",
     "unit + unit_taken, UNIT_BYTES - unit_taken);", "unit, UNIT_BYTES - unit_taken);"),
    ("a reply whose last values are sent at once stays open", "ps/server/reply_chunks.c",
     "        sl_outbox_end_parts(conn->conn, &conn->out);\n", ""),
    # Exactly once.
    ("replays are carried out again", "ps/server/request.c",
     "} else if (comes_again && replay(&incoming, &work)) {",
     "} else if (comes_again && !sl_flags_has(work.flags, SL_SHARD_WRITES) && replay(&incoming, &work)) {"),
    ("a replay pushes again", "ps/server/request.c",
     "        sl_shard_skip_writes(work);\n        return false;", "        return false;"),
    ("the last write done is not remembered", "ps/server/session.c",
     "        session->last_write_id = id;", "        session->last_write_id = session->last_write_id;"),
    ("a takeover forgets the last write", "ps/server/session.c",
     '        server_session_report(session, "is back");',
     '        server_session_report(session, "is back");\n        session->last_write_id = 0;'),
    ("what is sent again gets a new id", "worker/client/shard_conn.c",
     "    if (request->id == 0) {\n"
     "        request->id = conn->next_id++;",
     "    if (conn->next_id != 0) {\n"
     "        request->id = conn->next_id++;"),
    ("orphans are dropped", "ps/server/scheduler.c",
     "request->stage == SL_SERVER_REQUEST_STARTED && sl_server_request_writes(&request->work);",
     "request->stage == SL_SERVER_REQUEST_DONE && sl_server_request_writes(&request->work);"),
    ("an orphan is not found again", "ps/server/session.c",
     "    if (session->orphan != NULL && session->orphan->id == id) {",
     "    if (session->orphan != NULL && session->orphan->id == 0) {"),
    ("a restarted ps is taken for the old one", "worker/client/shard_conn_connect.c",
     "    bool remembers = welcome->resumed && (!restarted || welcome->restored);",
     "    bool remembers = welcome->resumed || restarted;"),
    ("writes that a restart may have met are sent again", "worker/client/shard_conn_connect.c",
     "    sl_shard_conn_fail_writes(conn, text);",
     "    (void)text;"),
    ("erases have no effect", "ps/shard/erase.c",
     "        sl_sparse_table_erase(table->sparse, keys, count);\n",
     ""),
    # Staleness.
    ("ssp admits one step early", "ps/shard/admit.c",
     "    return min_clock + consistency->staleness >= clock ||",
     "    return min_clock + consistency->staleness + 1 >= clock ||"),
    ("a floor leaves out worker 0", "ps/shard/clocks.c",
     "    for (uint32_t worker = 0; worker < end; worker++) {\n        const struct sl_clocks_worker *who = &clocks->workers[worker];\n        if (!sl_clocks_belongs",
     "    for (uint32_t worker = 1; worker < end; worker++) {\n        const struct sl_clocks_worker *who = &clocks->workers[worker];\n        if (!sl_clocks_belongs"),
    ("who is away counts no more", "ps/server/session.c",
     "    make_room_away(server);\n    wait_for(session);\n",
     "    make_room_away(server);\n    wait_for(session);\n    "
     "clock_ends(session, SL_SERVER_CLIENT_EXPIRED);\n"),
    ("who is replaced does not count", "ps/shard/clocks.c",
     "        .state = SL_CLOCKS_STATE_ACTIVE,\n"
     "        .seen",
     "        .state = SL_CLOCKS_STATE_EXPIRED,\n"
     "        .seen"),
    ("a joining worker may stand behind the floor", "ps/shard/clocks.c",
     "        clock < greatest_min_clock(clocks)) {",
     "        clock + 1 < greatest_min_clock(clocks)) {"),
    # Whole steps.
    ("bsp commits at arrival", "ps/shard/admit.c",
     "    return table->spec.consistency.mode == SL_CONSISTENCY_BSP && caller->has_clock &&",
     "    return table->spec.consistency.mode == SL_CONSISTENCY_SSP && caller->has_clock &&"),
    ("bsp commits an iteration early", "ps/shard/iteration.c",
     "        if (clock < sl_clocks_min(", "        if (clock <= sl_clocks_min("),
    ("what a lost worker did not tick is kept", "ps/shard/workers.c",
     "        sl_shard_iteration_drop(shard, worker, sl_clocks_of(&shard->clocks, worker));\n",
     ""),
    ("what a lost worker ticked is dropped", "ps/shard/workers.c",
     "        sl_shard_iteration_drop(shard, worker, sl_clocks_of(&shard->clocks, worker));",
     "        sl_shard_iteration_drop(shard, worker, 0);"),
    ("requests do not wait for a commit", "ps/shard/admit.c",
     "    if (request->cost > budget || shard->iteration.due || sl_shard_has_begun(request) ||",
     "    if (request->cost > budget || sl_shard_has_begun(request) ||"),
    ("small pulls do not wait for a commit", "ps/shard/pull.c",
     "    if (shard->iteration.due || table->dropped", "    if (table->dropped"),
    ("small pulls do not wait for clocks", "ps/shard/pull.c",
     "         !sl_shard_admits(shard, table, caller, pull.clock))) {",
     "         caller->worker == SL_LIMIT_WORKERS)) {"),
    # Deadlines.
    ("a step's deadline is not armed", "worker/client/substep.c",
     "    sl_timer_arm(sl_reactor_timers(substep->io->reactor), &substep->timer, substep->deadline_ns);\n",
     ""),
    ("a call's deadline is not armed", "net/session/session_request.c",
     "    sl_timer_arm(sl_reactor_timers(request->session->reactor), &request->deadline,\n                 request->timeout_ns < left_ns ? request->asked_ns + request->timeout_ns\n                                               : SL_CLOCK_NEVER);",
     "    (void)left_ns;"),
    ("an error names nobody", "worker/client/substep.c",
     "snprintf(substep->error, sizeof substep->error, \"%s: %s\", conn->name, text);",
     "snprintf(substep->error, sizeof substep->error, \"%.0s%s\", conn->name, text);"),
    # Memory.
    ("credit is not given back", "ps/server/request.h",
     "        .credit_bytes = (uint32_t)credit_bytes,\n        .credit_requests = 1,",
     "        .credit_bytes = (uint32_t)credit_bytes,\n        .credit_requests = 0,"),
    ("credit is not checked", "worker/client/shard_conn.c",
     "    if (sl_inflight_full(&conn->inflight) || !sl_credit_spend(&conn->reactor->credit, cost)) {",
     "    if (sl_inflight_full(&conn->inflight) ||\n"
     "        (!sl_credit_spend(&conn->reactor->credit, cost) && cost == 0)) {"),
    ("a buffer is not given back", "ps/server/request.c",
     "        sl_server_buffers_put(&request->server->host->memory.buffers, request->payload);\n        request->payload = NULL;",
     "        request->payload = NULL;"),
    ("sessions stay for ever", "ps/server/session.c",
     "    sl_timer_arm(sl_server_timers(server), &session->lease,\n                 sl_server_now_ns(server) + server->lease_ns);\n",
     "    (void)server;\n"),
    # Continuity.
    ("sessions end with their connection", "ps/server/session.c",
     "    if (session->forgets) {", "    if (session->client_id != 0) {"),
    ("parked requests are not looked at again", "ps/server/scheduler.c",
     "        if (!is_away && !sl_shard_waits(server->shard, &request->work)) {\n",
     "        if (!is_away && !sl_shard_waits(server->shard, &request->work) &&\n"
     "            link_next != &server->scheduler.parked.head) {\n"),
    ("requests in flight are not sent again", "worker/client/shard_conn.c",
     "            kept[count++] = request;\n",
     "            kept[count] = request;\n            sl_substep_failed(request, SL_ERR_CLOSED, \"broken\");\n"),
    ("a shard that restarted is not told the tables", "worker/client/shard_conn_connect.c",
     "    conn->restore.table = 0;",
     "    conn->restore.table = conn->io->tables.count;"),
    ("heartbeats are not sent", "ps/coordinator/coordinator.c",
     "    member->last_seen_ns = now_ns;\n"
     "    switch",
     "    member->last_seen_ns += 0 * now_ns;\n"
     "    switch"),
]

# The same, of net/dpdk: with --transport dpdk.
DPDK_MUTATIONS = [
    ("dpdk: what finds no room is acknowledged", "net/dpdk/conn.c",
     "        case SL_DPDK_NO_ROOM:\n            return false;",
     "        case SL_DPDK_NO_ROOM:\n            return true;"),
    ("dpdk: a piece that comes twice counts twice", "net/dpdk/receive.c",
     "    if ((slot->pieces & bit_of(conn, offset)) != 0) {",
     "    if (slot->bytes == 0 && (slot->pieces & bit_of(conn, offset)) != 0) {"),
    ("dpdk: what is lost is sent again with another content", "net/dpdk/send.c",
     "        dpdk_send_add_piece(&draft, message, lost->offset, lost->body_bytes);",
     "        dpdk_send_add_piece(&draft, message, 0, lost->body_bytes);"),
    ("dpdk: numbers outside of the window are taken", "net/dpdk/conn.c",
     "    if (!sl_dpdk_received_packets_allows(&conn->received, header->sequence, header->behind) ||",
     "    if ((!sl_dpdk_received_packets_allows(&conn->received, header->sequence, header->behind) && dpdk == NULL) ||"),
    ("dpdk: acknowledgements of what was not sent are believed", "net/dpdk/ack.c",
     "        return false;\n    }\n    if (sl_dpdk_before(conn->granted_theirs",
     "        return true;\n    }\n    if (sl_dpdk_before(conn->granted_theirs"),
    ("dpdk: an older packet's grant is believed", "net/dpdk/ack.c",
     "    if (sl_dpdk_before(conn->granted_theirs, header->granted)) {",
     "    if (conn->granted_theirs != header->granted) {"),
    ("dpdk: the checksum is not looked at", "net/dpdk/wire.c",
     "        if (sl_dpdk_checksum_fold(sl_dpdk_checksum(checksum, addresses, address_bytes + bytes)) !=\n"
     "            0) {",
     "        if (sl_dpdk_checksum_fold(sl_dpdk_checksum(checksum, addresses, address_bytes + bytes)) == 1) {"),
    ("dpdk: who is ready and goes keeps the reactor awake", "net/dpdk/poll.c",
     "        dpdk->awake = false; /* the connection that set it is gone */", ""),
]

# The same, of what strangers send: with --strangers.
STRANGER_MUTATIONS = [
    ("strangers: an answer between the address families is built", "net/dpdk/wire.c",
     "    if (IN6_IS_ADDR_V4MAPPED(&out->from.ip) || IN6_IS_ADDR_V4MAPPED(&out->to.ip)) {",
     "    if (out->from_mac == NULL) {"),
    ("strangers: they may hold the memory of all", "net/dpdk/receive.c",
     "    const enum sl_dpdk_share share = !conn->base.is_welcome && !(is_head && is_whole)",
     "    const enum sl_dpdk_share share = !conn->base.is_welcome && !is_head && is_whole"),
]

# Of checkpoints: with --disks.
DISK_MUTATIONS = [
    # One snapshot.
    ("disks: rows that change during a cut are not in it as they were", "ps/table/sparse_table.c",
     "    if (table->hook != NULL) {\n"
     "        table->hook->before_write(table->hook, records, count);",
     "    if (table->hook != NULL && count == UINT32_MAX) {\n"
     "        table->hook->before_write(table->hook, records, count);"),
    ("disks: a restored session has no last write", "ps/server/session_load.c",
     "    session->last_write_id = snapshot->last_write_id;",
     "    session->last_write_id = 0 * snapshot->last_write_id;"),
    ("disks: a restored session's last write is the last it heard of", "ps/server/session_load.c",
     "    session->last_write_id = snapshot->last_write_id;",
     "    session->last_write_id = snapshot->id_max;"),
    ("disks: a restored session has no failures", "ps/server/session_load.c",
     "    session->failure_count = snapshot->failure_count;",
     "    session->failure_count = 0 * snapshot->failure_count;"),
    ("disks: sessions are not in the image", "ps/server/session_snapshot.c",
     "    if (!is_lasting(session)) {", "    if (!is_lasting(session) || session->client_id != 0) {"),
    ("disks: sessions that change during a cut are in it as they are later", "ps/server/session.c",
     "    if (session->snapshot_number != session->server->sessions.snapshot.number) {",
     "    if (session->snapshot_number != session->server->sessions.snapshot.number &&\n"
     "        !session->server->sessions.snapshot.walks) {"),
    ("disks: a session that changes while others are put is not in the image as it was",
     "ps/server/session.c",
     "    sl_server_session_touch(session);\n    if (id > session->last_write_id) {",
     "    if (id > session->last_write_id) {"),
    ("disks: slots are not loaded", "ps/shard/load.c",
     "        memcpy(record->values, batch.rows[i].floats, words * sizeof(float));",
     "        memcpy(record->values, batch.rows[i].floats, table->spec.dim * sizeof(float));"),
    ("disks: slots of what changes during a cut are those after it", "ps/snapshot/copy_sparse.c",
     "            blocks->copy_debt += copy_sparse_put(copy, records[i]);",
     "            struct sl_row *record = sl_sparse_table_record(copy->table, records[i]);\n"
     "            const uint32_t dim = sl_sparse_table_spec(copy->table)->dim;\n"
     "            for (uint32_t k = dim; k < copy->float_count; k++) {\n"
     "                record->values[k] += 1;\n"
     "            }\n"
     "            blocks->copy_debt += copy_sparse_put(copy, records[i]);\n"
     "            for (uint32_t k = dim; k < copy->float_count; k++) {\n"
     "                record->values[k] -= 1;\n"
     "            }"),
    ("disks: dense blocks that change during a cut are not in it as they were", "ps/table/dense_table.c",
     "    if (table->hook != NULL && count > 0) {",
     "    if (table->hook != NULL && count == UINT64_MAX) {"),
    # Onto other numbers of ps and reactors.
    ("disks: other numbers: the last shard's file is not read", "ps/server/restore.c",
     "        files->stream_shard + 1 == current(files)->shard_count) {",
     "        files->stream_shard + 2 >= current(files)->shard_count) {"),
    ("disks: other numbers: what adds is read of the first shard only", "ps/server/restore.c",
     "    if (files->item + 1 < files->chain.count) {",
     "    if (files->item + 1 < files->chain.count && files->stream_shard == 0) {"),
    ("disks: other numbers: a step is that of the last file", "ps/shard/load.c",
     "    if (load->same || snapshot.step >= table->step) {",
     "    if (load->same || snapshot.step < UINT64_MAX) {"),
    ("disks: other numbers: rows forget when they were visited", "ps/shard/load.c",
     "        record->last_step = batch.rows[i].last_step;",
     "        record->last_step = load->same ? batch.rows[i].last_step : 0;"),
    # What was acknowledged before.
    ("disks: a file is not synced", "ps/checkpoint/writer.c",
     "    err = err != 0 ? err : sl_disk_sync(&writer->file, reason);\n", ""),
    ("disks: the manifest's name is not synced", "reactor/disk.c",
     "    return sl_disk_sync_directory(disk, subdir, reason);\n"
     "}\n"
     "\n"
     "int sl_disk_load",
     "    return 0;\n"
     "}\n"
     "\n"
     "int sl_disk_load"),
    ("disks: the newest is not looked at", "ps/checkpoint/select.c",
     "    for (uint32_t i = list->count; err == 0 && i > 0; i--) {",
     "    for (uint32_t i = list->count - 1; err == 0 && i > 0 && i < list->count; i--) {"),
    ("disks: what others stand on is removed", "ps/checkpoint/directory_prune.c",
     "            keep_number(list, kept, chain.items[k].number);",
     "            keep_number(list, kept, list->items[i].number);"),
    ("disks: adds leave out rows that were changed", "ps/snapshot/copy_sparse.c",
     "         !sl_snapshot_delta_holds(&copy->since, number, record->last_step))) {",
     "         !copy->since.all && number < copy->since.count)) {"),
    ("disks: erased keys are not listed", "ps/shard/snapshot_base.c",
     "    for (uint64_t at = base->erased; at < log->end; at++) {",
     "    for (uint64_t at = log->end; at < log->end; at++) {"),
    ("disks: rows that are erased during a cut are not in it", "ps/table/sparse_table.c",
     "    if (table->hook != NULL) {\n"
     "        table->hook->before_write(table->hook, &record_index, 1);",
     "    if (table->hook != NULL && record_index == SL_ROW_NONE) {\n"
     "        table->hook->before_write(table->hook, &record_index, 1);"),
    ("disks: what adds to a checkpoint is not loaded", "ps/server/restore.c",
     "    if (files->item + 1 < files->chain.count) {",
     "    if (files->item + 1 < files->chain.count && files->number == 0) {"),
    # Damage.
    ("disks: the checksum of a block is not looked at", "ps/checkpoint/reader.c",
     "reader->header.hash) != block->bytes_hash) {",
     "reader->header.hash) != block->bytes_hash && block->kind == 0) {"),
    ("disks: a manifest's checksum is not looked at", "ps/checkpoint/manifest.c",
     "    if (!sealed(text, bytes)) {", "    if (!sealed(text, bytes) && bytes == 0) {"),
    ("disks: a manifest may speak of other files than its id", "ps/checkpoint/manifest.c",
     "    if (!parser->failed && out->id != sl_checkpoint_manifest_id(out)) {",
     "    if (!parser->failed && out->id == 0) {"),
    # All begin from one.
    ("disks: one that was never complete is not passed over", "ps/coordinator/restore.c",
     "        if (coordinator_restore_has(&parties->ps[i]->checkpoints.unfinished, number)) {",
     "        if (coordinator_restore_has(&parties->ps[i]->checkpoints.unfinished, number) && number == 0) {"),
    ("disks: all begin from what one of them has", "ps/coordinator/restore.c",
     "        if (agree == parties->count) {", "        if (agree > 0) {"),
    ("disks: a coordinator that begins anew is told the last tables only", "ps/process/restore.c",
     "        process->directory.restore->table = 0;\n", ""),
    # It goes on.
    ("disks: long pushes wait for ever once there was a cut", "ps/shard/snapshot.c",
     "    shard->snapshots.wanted = false;\n"
     "    struct sl_shard_snapshot *snapshot;",
     "    struct sl_shard_snapshot *snapshot;"),
    ("disks: checkpoints go on without values that were lost", "ps/coordinator/checkpoint.c",
     "    if (coordinator->values_lost != 0) {", "    if (coordinator->values_lost > 1 + SL_LIMIT_PS) {"),
    ("disks: nobody is told of a checkpoint that failed", "ps/process/checkpoint.c",
     "    process->directory.checkpoints->waited = 0;\n    sl_agent_checkpoint_fail(process->agent, number, err, why);\n",
     "    process->directory.checkpoints->waited = 0;\n    (void)err;\n"),
]

# Of backups: with --replicas.
REPLICA_MUTATIONS = [
    # Nothing that was acknowledged is lost, or carried out twice.
    ("replicas: replies do not wait for the backup", "ps/replication/log.c",
     "    const bool waits = request->server->replica->link == SL_REPLICATION_IN_SYNC;",
     "    const bool waits = request->server->replica->link == SL_REPLICATION_NONE;"),
    ("replicas: who has no word of the coordinator goes on alone", "ps/replication/state.c",
     "        sl_replication_report(server, false);",
     "        sl_replication_log_abort(server);\n        sl_replication_report(server, false);"),
    ("replicas: a backup in step is one that gets its image", "ps/replication/log.c",
     "        replica->log.ended < replica->log.answered) {", "        replica->log.ended > replica->log.answered) {"),
    ("replicas: what is not in step takes over", "ps/coordinator/placement.c",
     "shard->backup != NO_TASK && shard->in_sync &&",
     "shard->backup != NO_TASK &&"),
    ("replicas: what ends while the image is made is not logged", "ps/replication/state.c",
     "logs = link >= SL_REPLICATION_SNAPSHOT;", "logs = link >= SL_REPLICATION_FOLLOWS;"),
    ("replicas: the backup does not know which writes are done", "ps/replication/receiver.c",
     "        sl_server_session_wrote(session, head->request_id);\n", "        (void)session;\n"),
    ("replicas: an image has no sessions", "ps/server/session_snapshot.c",
     "    snapshot->walks = true;\n    snapshot->for_backup", "    snapshot->walks = !for_backup;\n    snapshot->for_backup"),
    ("replicas: entries that came are carried out again", "ps/replication/receiver.c",
     "    backup->received = backup->acked = backup->position;",
     "    backup->position -= resumed && backup->position > 0;\n"
     "    backup->received = backup->acked = backup->position;"),
    ("replicas: a request is logged when it is complete", "ps/server/request.c",
     "request->work.effect_end > request->effect_first) {",
     "request->work.effect_end > request->work.prefix.section_count) {"),
    ("replicas: a backup repeats what a request has done in part", "ps/replication/receiver.c",
     "    session->begun_sections = head->end;\n", "    session->begun_sections = 0;\n"),
    ("replicas: writes that have failed are not logged", "ps/replication/log.c",
     "    if (request->payload == NULL ||",
     "    if (request->list == NULL ||"),
    # One primary in an epoch, and none of an older one.
    ("replicas: epochs are not kept", "ps/coordinator/record.c",
     "                       shard->epoch, shard->primary + 1,", "                       1UL, shard->primary + 1,"),
    ("replicas: the end of an old lease ends a new term", "net/store/held_key.c",
     "    if (held->state == SL_HELD_KEY_HOLDING && ask->lease == held->lease) {",
     "    if (held->state == SL_HELD_KEY_HOLDING && ask->lease != 0) {"),
    ("replicas: a take-over is not kept", "ps/coordinator/placement.c",
     "    sl_coordinator_placement_note(coordinator, (uint32_t)(shard - coordinator->placement.shards));\n",
     ""),
    ("replicas: the primary of an older epoch is believed", "ps/replication/replication.c",
     "    } else if (conn->greeting.hello.epoch < replica->config.epoch) {",
     "    } else if (conn->greeting.hello.epoch < replica->config.epoch &&\n"
     "               conn->greeting.hello.state == 0) {"),
    ("replicas: a primary takes what another sends it", "ps/replication/replication.c",
     "    } else if (replica->config.is_primary) {",
     "    } else if (replica->config.is_primary && conn->greeting.hello.state == 0) {"),
    ("replicas: the backup keeps what it had in another epoch", "ps/replication/replication.c",
     "    } else {\n        sl_replication_receiver_forget(server);\n    }\n", "    }\n"),
    ("replicas: a backup not in sync is promoted", "ps/replication/replication.c",
     "    if (replica->backup.is_broken || replica->backup.is_loading) {", "    if (replica->backup.is_loading) {"),
    ("replicas: an epoch during a promotion is that of a primary", "ps/replication/replication.c",
     "    if (replica->stage == SL_REPLICATION_PROMOTING) {\n"
     "        return;",
     "    if (replica->stage == SL_REPLICATION_PROMOTING && was_told == false) {\n"
     "        return;"),
    ("replicas: a shard hands over by itself", "ps/replication/state.c",
     "*switchover = may_switch_over && replica->link", "*switchover = !replica->has_given_up && replica->link"),
    # It goes on.
    ("replicas: a take-over gives nobody a lease", "ps/replication/replication.c",
     "    sl_server_sessions_await(server, TAKE_OVER_LEASES);\n", ""),
    ("replicas: losses are not logged", "ps/server/session.c",
     "        if (server->role.logs) {\n            server->options.hooks->client_event(&unknown,", "        if (server->lease_ns == 0) {\n            server->options.hooks->client_event(&unknown,"),
    ("replicas: the end of unknown sessions is not heard of", "ps/replication/receiver.c",
     "        if (is_client(&head)) {\n            sl_server_session_unfollow(",
     "        if (sl_server_session_find(server, head.client_id) == NULL) {\n            return true;\n        }\n"
     "        if (is_client(&head)) {\n            sl_server_session_unfollow("),
    ("replicas: tables are not logged", "ps/server/control.c",
     "    if (channel->server->role.logs) {", "    if (channel->server->role.logs && message->kind != SL_MESSAGE_TABLE_OPEN) {"),
    ("replicas: an attempt to connect outlives a take-over", "worker/client/shard_conn_connect.c",
     "    sl_log_info(\"%s: %s\", conn->name, why);\n    move(conn);\n",
     "    sl_log_info(\"%s: %s\", conn->name, why);\n"),
    ("replicas: nobody connects again to a backup in step", "ps/replication/sender.c",
     "        sl_replication_log_resend(server);\n", "        sl_replication_log_pump(server);\n"),
    ("replicas: credit of another connection is given back", "ps/replication/receiver.c",
     "    backup->credit_bytes = backup->credit_requests = 0; /* from an earlier connection */\n", ""),
]

MOVE_MUTATIONS = [
    ("moves: what is not in sync becomes the primary", "ps/coordinator/move.c",
     "const bool is_ready = shard->in_sync && ", "const bool is_ready = shard->epoch > 0 && "),
    ("moves: the target of a move that was aborted keeps the shard", "ps/process/placement.c",
     "    if (hosted->is_here && (!is_wanted || (was_primary && now->primary != task))) {",
     "    if (hosted->is_here && was_primary && now->primary != task) {"),
    ("moves: a source that is gone aborts the move of what is in sync", "ps/coordinator/placement.c",
     "shard->backup != NO_TASK && shard->in_sync &&\n                   load.is_here[shard->backup]) {",
     "shard->backup != NO_TASK && shard->in_sync && !is_moving(shard) &&\n                   load.is_here[shard->backup]) {"),
    ("moves: the places of shards are not recorded", "ps/coordinator/placement.c",
     "    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_SHARDS,\n",
     "    sl_coordinator_note(coordinator, shard > 0 ? SL_COORDINATOR_RECORD_SHARDS : SL_COORDINATOR_RECORD_JOB,\n"),
    ("moves: drains do not end", "ps/coordinator/move.c",
     "    if (finish_drains(coordinator) || ", "    if ((false && finish_drains(coordinator)) || "),
    ("moves: a drained server ends with its last shard", "ps/coordinator/move.c",
     "        if (shard->primary == task ||\n            (coordinator->placement.replicas > 0 &&",
     "        if ((shard->primary == task && shard->backup == NO_TASK) ||\n            (coordinator->placement.replicas > 0 &&"),
    ("moves: a balance does not end", "ps/coordinator/move.c",
     "        coordinator->placement.balances = false;",
     "        coordinator->placement.balances = true;"),
    ("moves: a server that is created again has no role", "ps/process/placement.c",
     "            sl_replication_set_config(hosted->server, &hosted->end.config);",
     "            hosted->end.config.epoch = 0;"),
]

# Where seeds do not get there, or seldom: the unit test that fails.
UNIT_TESTS = {
    "a reply whose last values are sent at once stays open": "unit_ps_server reply_chunks",
    "disks: rows that are erased during a cut are not in it": "unit_ps_shard erase",
    "disks: a restored session has no failures": "unit_ps_server session_load",
    "policies: bsp: a buffered push writes to the record of a row that has gone": "unit_ps_shard evict",
    "disks: a session that changes while others are put is not in the image as it was":
        "unit_ps_server session_snapshot",
    "disks: the checksum of a block is not looked at": "unit_ps_checkpoint damage",
    "disks: a manifest's checksum is not looked at": "unit_ps_checkpoint damage",
    "disks: a manifest may speak of other files than its id": "unit_ps_checkpoint manifest",
    "disks: one that was never complete is not passed over": "unit_ps_coordinator restore",
    "disks: long pushes wait for ever once there was a cut": "unit_ps_shard snapshot",
    "disks: a coordinator that begins anew is told the last tables only": "unit_ps_process restore",
    "disks: nobody is told of a checkpoint that failed": "unit_ps_process restore",
    "objects: blocks that were evicted stay listed": "unit_objects_nodes cache",
    "objects: the digest of attached bytes is not looked at": "unit_objects_nodes put",
    "objects: the digest of a rebuilt block is not checked": "unit_objects_nodes delta",
    "replicas: the primary of an older epoch is believed": "unit_ps_replication strangers",
    "replicas: a primary takes what another sends it": "unit_ps_replication strangers",
    "replicas: epochs are not kept": "unit_ps_coordinator record",
    "replicas: the end of unknown sessions is not heard of": "unit_ps_replication strangers",
    "replicas: the backup keeps what it had in another epoch": "unit_ps_replication replication",
    "replicas: nobody connects again to a backup in step": "unit_ps_replication replication",
    "replicas: a shard hands over by itself": "unit_ps_replication_promotion promotion",
    "replicas: the end of an old lease ends a new term": "unit_net_store held_key",
    "moves: a server that is created again has no role": "unit_ps_process placement",
    "transfer: later tokens are not sent to peers": "unit_net_transfer_engines region",
    "transfer: later tokens are not published": "unit_net_transfer_engines region",
    "replicas: an epoch during a promotion is that of a primary":
        "unit_ps_replication_promotion promotion",
    "objects: HOLD and DROP are of the first part": "unit_objects catalogue",
    "objects: removed versions have no tombstones": "unit_objects catalogue_restore",
    "objects: of two contents the older commit is found": "unit_objects catalogue_restore",
    "objects: numbers begin again after a restart": "unit_objects catalogue_restore",
    "objects: other bytes outlive the removal of their number": "unit_objects catalogue_restore",
    "objects: the first reports of nodes are not awaited": "unit_objects catalogue_restore",
    "objects: followers are not sent the removal of the newest": "unit_objects catalogue",
    "objects: a removal that failed is not repeated": "unit_objects_directory directory",
    "objects: a start removes data that has no record": "unit_objects_directory directory",
}

LINK_MUTATIONS = [
    ("link: a long frame has ten seconds in total", "ps/server/admission.c",
     "++conn->sink.checks >= CHECKS_MAX_FRAME",
     "++conn->sink.checks >= CHECKS_MAX"),
    ("link: a long reply has ten seconds in total", "ps/server/admission.c",
     "const bool makes_progress = is_done || taken_bytes != conn->output.taken_bytes;",
     "const bool makes_progress = is_done;"),
]


TRANSFER_MUTATIONS = [
    ("transfer: a short WRITE is not copied", "net/rma/target.c",
     "    if (message->token != NULL && slice->memory != NULL) { /* else it was received there */",
     "    if (message->token != NULL && slice->memory != NULL && slice->bytes > 4096) {"),
    ("transfer: a WRITE is over when it is sent", "net/rma/initiator.c",
     "    if (slice->is_answered) {\n        initiator_finish(slice",
     "    if (slice->bytes > 0) {\n        initiator_finish(slice"),
    ("transfer: fences are not waited for", "net/transfer/route.c",
     "    while (!waits && !sl_transfer_route_is_fencing(route) &&",
     "    while (!waits &&"),
    ("transfer: a fence leaves the connections open", "net/transfer/target.c",
     "            hello->lane == fence->lane && hello->lane_epoch <= fence->epoch) {",
     "            hello->lane == fence->lane && hello->lane_epoch < fence->epoch) {"),
    ("transfer: the end of the memory is not looked at", "net/transfer/route.c",
     "item->bytes > buffer->bytes - offset) {",
     "item->bytes > buffer->bytes) {"),
    ("transfer: slices begin too far on", "net/rma/target.c",
     "slice->memory->base + wire.offset;",
     "slice->memory->base + wire.offset + 8;"),
    ("transfer: a batch's deadline is not armed", "net/transfer/batch.c",
     "                       batch->deadline_ns > now_ns ? batch->deadline_ns - now_ns : 0);",
     "                       batch->deadline_ns > now_ns ? SL_CLOCK_NEVER : 0);"),
    ("transfer: lanes that owe answers are not closed", "net/transfer/batch.c",
     "            sl_transfer_route_break(part->route, part, \"its answers came too late\");\n",
     ""),
    ("transfer: a batch ends before its answers", "net/transfer/batch.c",
     "    if (is_over) {\n        transfer_batch_conclude(batch);\n    } else {",
     "    if (is_over || batch->is_ending) {\n        transfer_batch_conclude(batch);\n    } else {"),
    ("transfer: unregister does not wait for users", "net/transfer/memory.c",
     "        if (region->memory.uses > 0 || region->pending_count > 0) {",
     "        if (region->pending_count > 0) {"),
    ("transfer: memory that is registered again keeps its key", "net/transfer/memory.c",
     "    const uint64_t key = sl_transfer_setup_random(&transfer->setup);",
     "    const uint64_t key = (uintptr_t)memory->base;"),
    ("transfer: a checksum of memory that changes", "net/rma/target.c",
     "target->checksum || sl_rma_payload_is_copied(", "sl_rma_payload_is_copied("),
    ("transfer: credit of a READ is not returned", "net/rma/target.c",
     "    (void)pop(&target->reads);\n    sl_credit_grant(&target->due, slice->bytes, 1);",
     "    (void)pop(&target->reads);"),
    ("transfer: what is done in part does not fail", "net/transfer/part.c",
     "        if (item->left > 0 && item->err == 0) {",
     "        if (item->left == item->bytes && item->err == 0) {"),
    ("transfer: notices come before their WRITEs", "net/transfer/batch.c",
     "        sl_transfer_route_add(batch->parts[i].route, &batch->parts[i]);\n    }\n",
     "        sl_transfer_route_add(batch->parts[i].route, &batch->parts[i]);\n    }\n"
     "    if (batch->sending != NULL) {\n        transfer_batch_conclude(batch);\n        return;\n    }\n"),
    ("transfer: notices reach the next incarnation", "net/transfer/segment.c",
     "    sl_session_close(&segment->session);\n    sl_list_remove(&segment->list.publishing.link);\n"
     "    sl_reactor_disarm(segment->home->reactor, &segment->opening.late);\n",
     "    sl_list_remove(&segment->list.publishing.link);\n"
     "    sl_reactor_disarm(segment->home->reactor, &segment->opening.late);\n"),
    ("transfer: a notice that comes again is taken again", "net/transfer/inbox.c",
     "notice->sequence <= sender->sequence) {",
     "notice->sequence < sender->sequence) {"),
    ("transfer: a posted WRITE is over before its FLUSH", "net/transfer/lane.c",
     "    } else if (slice->rma.op == SL_RMA_WRITE && err == 0) {",
     "    } else if (slice->rma.op == SL_RMA_WRITE && err > 0) {"),
    ("transfer: posted WRITEs of a lost lane are not fenced", "net/transfer/lane.c",
     "    return any(lane, NULL, SL_RMA_WRITE);",
     "    return lane->rma.in_flight_count > 0 && any(lane, NULL, SL_RMA_WRITE);"),
    ("transfer: a removed region is forgotten at once", "net/transfer/region.c",
     "            region->pending_count++;\n            sl_transport_rma_region_remove",
     "            sl_transport_rma_region_remove"),
    ("transfer: later tokens are not sent to peers", "net/transfer/region.c",
     "        transfer_region_settle(io, region);\n    } else {\n        announce(io, region);",
     "        transfer_region_settle(io, region);\n    } else {\n        (void)announce;"),
    ("transfer: later tokens are not published", "net/transfer/segment.c",
     "    } else if (segment->list.state == SL_TRANSFER_LIST_COMPLETE) {\n        sl_transfer_io_wake(segment->home, &segment->list.publishing);",
     "    } else if (segment->list.remote->count == 0) {\n        sl_transfer_io_wake(segment->home, &segment->list.publishing);"),
    ("transfer: slices of a lost lane fail", "net/transfer/route.c",
     "    return slice->attempts++ <= route->rail_count && !slice->part->is_stopped;",
     "    return slice->attempts++ > route->rail_count && !slice->part->is_stopped;"),
    ("transfer: the limit on sent bytes is not kept", "net/transfer/io.c",
     "    if (io->tokens < 0) {", "    if (io->tokens < INT64_MIN / 2) {"),
    ("transfer: idle lanes stay open", "net/transfer/route.c",
     "        sl_transfer_rails_close(route);\n        return;", "        return;"),
    ("transfer: the record of an engine that ends stays", "net/transfer/directory.c",
     "    if (directory != NULL && directory->is_published &&",
     "    if (directory != NULL && !directory->is_published &&"),
    ("transfer: leases are not renewed", "net/transfer/announcement.c",
     "    sl_reactor_arm(self->reactor, timer, TICK_NS);",
     "    sl_reactor_arm(self->reactor, timer, TICK_NS * 100);"),
    ("transfer: the bytes of a short READ are dropped", "net/rma/initiator.c",
     "    if (message->token != NULL) { /* else they were received there */",
     "    if (message->token == slice) {"),
]


OBJECT_MUTATIONS = [
    ("objects: the digest of attached bytes is not looked at", "objects/node/cache.c",
     "!sl_objects_manifest_verify(manifest, 0, news->commit.image.bytes)",
     "false"),
    ("objects: PUT is a success before its commit", "objects/node/store.c",
     "        node_store_put(stored);\n    } else {",
     "        node_store_put(stored);\n        node_store_answer(stored, 0, NULL);\n    } else {"),
    ("objects: a get ends before its last block", "objects/node/fetch.c",
     "        if (fetch->missing[i] > 0) {\n            return;",
     "        if (fetch->missing[i] > 1) {\n            return;"),
    ("objects: the digest of a rebuilt block is not checked", "objects/node/delta.c",
     "        it->is_right = err == 0 && sl_objects_manifest_verify(&copy->manifest, it->block, block);",
     "        it->is_right = err == 0;"),
    ("objects: a number is given twice", "objects/catalogue/catalogue.c",
     "version->part_count == message->part_count &&\n        catalogue_is_same(",
     "version->part_count == message->part_count &&\n        !catalogue_is_same("),
    ("objects: a publisher that follows its name declines its version", "objects/node/reports.c",
     "(message->kind == SL_OBJECTS_COMMIT &&", "(message->kind == SL_OBJECTS_STORE &&"),
    ("objects: HOLD and DROP are of the first part", "objects/catalogue/catalogue.c",
     "? &version->parts[part] : NULL;", "? &version->parts[0] : NULL;"),
    ("objects: copies are held without their record", "objects/node/reports.c",
     ".record_count = copy->record != NULL ? 1 : 0,",
     ".record_count = 0,"),
    ("objects: a node does not attach again", "objects/node/membership.c",
     "    } else if (err != 0 || answer->term != membership->term) {",
     "    } else if (err != 0 && answer == NULL && !membership->is_attached) {"),
    ("objects: withdrawn memory stays registered", "objects/node/copy.c",
     "    const int err = sl_transfer_unregister(transfer, memory->bases, memory->count, timeout_ms);",
     "    const int err = 0;"),
    ("objects: a request's deadline is not armed", "objects/node/membership.c",
     "deadline_ns > now_ns ? deadline_ns - now_ns : 0);\n    send_asks(node);",
     "2 * deadline_ns - now_ns);\n    send_asks(node);"),
    ("objects: a fetch's deadline is not armed", "objects/node/fetch.c",
     "    if (now_ns >= fetch->deadline_ns) {", "    if (now_ns >= 2 * fetch->deadline_ns) {"),
    ("objects: nobody is asked for more sources", "objects/node/fetch.c",
     "        fetch_assign(fetch, stripe, other);\n    } else {\n        find_more(fetch);",
     "        fetch_assign(fetch, stripe, other);\n    } else {\n        (void)stripe;"),
    ("objects: leases do not end", "objects/catalogue/catalogue.c",
     "            if (catalogue->now_ms < node->expires_ms ||",
     "            if (node->expires_ms > 0 ||"),
    ("objects: children of a copy that is gone keep their parent", "objects/catalogue/catalogue_state.c",
     "    forget_children(copy);\n    free_copy(", "    free_copy("),
    ("objects: copies are reported once", "objects/node/membership.c",
     "    } else if (since_ns >= membership->lease_ms * SL_CLOCK_NS_PER_MS / 4) {",
     "    } else if (since_ns >= membership->lease_ms * SL_CLOCK_NS_PER_S) {"),
    ("objects: copies that are not reported stay", "objects/catalogue/catalogue.c",
     "        if (node->alives - copy->heard <= missed ||",
     "        if (node->alives >= copy->heard ||"),
    ("objects: a node that ends does not detach", "objects/node/membership.c",
     "membership->is_asking = membership->is_attached && !is_host;",
     "membership->is_asking = false;"),
    ("objects: a view has the slots of other blocks", "objects/node/session.c",
     "copy->pooled->blocks[i].slot;", "copy->pooled->blocks[i / 2].slot;"),
    ("objects: a slot of two versions is freed with the first of them", "objects/node/pool.c",
     "        pool->free_count += --pool->users[block->slot] == 0;\n        block->slot = NONE;",
     "        pool->users[block->slot] = 0;\n        pool->free_count++;\n"
     "        block->slot = NONE;"),
    ("objects: a slot that is freed is not counted", "objects/node/pool.c",
     "        pool->free_count += --pool->users[block->slot] == 0;\n        block->slot = NONE;",
     "        --pool->users[block->slot];\n        block->slot = NONE;"),
    ("objects: parts that are found in files are not kept", "objects/node/store.c",
     "        stored->part.is_kept = hold->commit.record.time_ms != 0;",
     "        stored->part.is_kept = false;"),
    ("objects: slots are not given back", "objects/node/cache.c",
     "        sl_objects_withdraw(node, copy, \"it is not used any more\");\n    }\n"
     "    sl_objects_pool_unpin(&node->pool, pooled);",
     "        sl_objects_withdraw(node, copy, \"it is not used any more\");\n    }\n"
     "    (void)pooled;"),
    ("objects: slots are given to others while children read them", "objects/node/serve.c",
     "        (is_read ? sl_objects_pool_pin : sl_objects_pool_unpin)(&node->pool, copy->pooled);",
     "        (void)is_read;"),
    ("objects: blocks that were evicted stay listed", "objects/node/cache.c",
     "(copy, version->resident_count - version->head_count)", "(copy, copy->verified.count)"),
    ("objects: FIND finds the oldest version", "objects/catalogue/catalogue_state.c",
     "    return catalogue_state_committed(object, object->versions.count - 1, UINT32_MAX);",
     "    return catalogue_state_committed(object, 0, 1);"),
    ("objects: a keeper that starts again does not report its files", "objects/node/reports.c",
     "    const bool is_due = stored->is_kept &&",
     "    const bool is_due = !stored->is_kept &&"),
    ("objects: a commit that is not recorded is a success", "objects/node/publish_store.c",
     "    if (err == 0) {\n        target->keeper->node = answer->node;",
     "    if (err == 0 || (answer != NULL && store->is_commit)) {\n        target->keeper->node = answer->node;"),
    ("objects: data is not synced", "objects/node/directory.c",
     "    err = err != 0 ? err : sl_disk_sync(&file, reason);\n", ""),
    ("objects: a removal that failed is not repeated", "objects/node/directory.c",
     "    return !directory->is_ending;", "    return false;"),
    ("objects: a start removes data that has no record", "objects/node/directory.c",
     "               : has_sibling(names, name, stem, \"removed\") ? LEFTOVER\n"
     "                                                           : FOREIGN;",
     "               : LEFTOVER;"),
    ("objects: what the catalogue does not know is removed", "objects/catalogue/catalogue_versions.c",
     "    if (was_other || sl_objects_tombstones_has(", "    if (was_other || !sl_objects_tombstones_has("),
    ("objects: other bytes outlive the removal of their number",
     "objects/catalogue/catalogue_versions.c", "    if (was_other || ", "    if ("),
    ("objects: a file of other bytes is the source of a copy", "objects/node/stored.c",
     "stored != NULL && sl_objects_stored_is_of(stored, copy->info.digest) ?", "stored != NULL ?"),
    ("objects: removed versions have no tombstones", "objects/catalogue/catalogue_state.c",
     "        if (retire) {\n            (void)sl_objects_tombstones_add(",
     "        if (!retire) {\n            (void)sl_objects_tombstones_add("),
    ("objects: of two contents the older commit is found", "objects/catalogue/catalogue_versions.c",
     "record->time_ms > known->time_ms;", "record->time_ms < known->time_ms;"),
    ("objects: versions are retired without a commit", "objects/catalogue/catalogue.c",
     "        sl_catalogue_publish(catalogue, restored, message->commit.record.time_ms);",
     "        sl_catalogue_publish(catalogue, restored, message->commit.record.time_ms);\n"
     "        sl_catalogue_retire_old(catalogue, restored);"),
    ("objects: numbers begin again after a restart", "objects/catalogue/catalogue.c",
     "(object->last > above ? object->last : above) + 1", "object->last + 1"),
    ("objects: the first reports of nodes are not awaited", "objects/catalogue/catalogue.c",
     "(catalogue->awaited_count > 0 &&", "(catalogue->awaited_count > UINT32_MAX - 1 &&"),
    ("objects: followers are not sent the removal of the newest", "objects/catalogue/catalogue.c",
     "        if (made->version != 0 && made->version <= object->removed &&\n            find_version",
     "        if (made->version != 0 && made->version > object->removed &&\n            find_version"),
    ("objects: a keeper answers before it has the part", "objects/node/store.c",
     "        operation->use.copy->is_uncommitted = true;",
     "        operation->use.copy->is_uncommitted = true;\n        node_store_answer(stored, 0, NULL);"),
]

SERVE_MUTATIONS = [
    ("serve: deadlines at a worker are not kept", "programs/serve/gateway/admission.c",
     "request->deadline_ns + SL_SERVE_GRACE_NS", "request->deadline_ns + SL_CLOCK_NS_PER_S"),
    ("serve: an answer is given twice", "programs/serve/gateway/dispatch.c",
     "    dispatch->stats.results[sl_serve_request_result(err)]++;\n    request->done(request);",
     "    dispatch->stats.results[sl_serve_request_result(err)]++;\n    if (request->tries > 1) {\n"
     "        request->done(request);\n    }\n    request->done(request);"),
    ("serve: outputs that do not fit are not written", "programs/serve/worker/pending.c",
     "    if (!is_written) {\n", "    if (true) {\n"),
    ("serve: inputs that came with INFER are not taken", "programs/serve/worker/worker.c",
     "        memcpy(pending->text, in->tail, in->input_bytes);\n", ""),
    ("serve: ranges of a late request are used at once", "programs/serve/gateway/flight.c",
     "    request->flight = NULL;\n    flight->request = NULL;",
     "    request->flight = NULL;\n    flight->request = NULL;\n"
     "    sl_serve_range_put(&flight->remote->inputs, &flight->input);\n"
     "    sl_serve_range_put(&flight->remote->outputs, &flight->output);"),
    ("serve: outputs are not kept until they are read", "programs/serve/gateway/dispatch.c",
     "    flight->is_read = true;\n    flight->remote->outputs_read++;",
     "    sl_serve_range_put(&flight->remote->outputs, &flight->output);"),
    ("serve: memory of inputs is not given back", "programs/serve/gateway/gateway.c",
     "    sl_serve_gateway_memory_free(gateway, request->input);\n    request->input = NULL;",
     "    request->input = NULL;"),
    ("serve: a worker that cannot be reached is forgotten", "programs/serve/gateway/dispatch.c",
     "remote->end != SL_SERVE_REMOTE_STAYS || remote->tries == AGAIN_MAX;", "true;"),
    ("serve: a worker that joins again keeps its requests", "programs/serve/gateway/dispatch.c",
     "        sl_serve_remote_lose(remote, \"it joins once more\");\n", ""),
    ("serve: the answer names the newest version", "programs/serve/worker/runner.c",
     "sl_serve_pending_answer(pending, 0, runner->version->number, pending->output_bytes, \"%s\",",
     "sl_serve_pending_answer(pending, 0, sl_subscription_newest(entry->subscription), "
     "pending->output_bytes, \"%s\","),
    ("serve: layers are computed before their bytes are there", "programs/serve/worker/version.c",
     "    if (bytes <= version->verified) {", "    if (bytes <= version->bytes) {"),
    ("serve: two threads use one subscription", "programs/serve/worker/runner.c",
     "            (entry->is_opening && !sl_serve_version_is_complete(entry->current))) {",
     "            (entry->is_opening && entry->is_running)) {"),
    ("serve: views stay open", "programs/serve/worker/version.c",
     "    sl_view_close(&gone->view);\n    free(gone);", "    free(gone);"),
]

# Of tables of a job that are published and served: with --publish.
PUBLISH_MUTATIONS = [
    ("publish: a version lacks shards", "objects/node/publish_tables.c",
     "publish->shards != publish->shard_count", "publish->shards > publish->shard_count"),
    ("publish: rows are not sorted", "ps/publish/ps_tables.c",
     "err = sl_snapshot_rows_sort(&shard->tables[t]) != 0", "err = false"),
    ("publish: a view of no bytes does not wait for its manifest", "objects/node/pin.c",
     "copy->fetch == NULL || copy->pooled->blocks[0].is_verified", "true || copy->pooled->blocks[0].is_verified"),
]

# Of a thousand nodes whose catalogue restarts: with --crowd objects.
CROWD_MUTATIONS = [
    ("crowd: the first pause is not spread", "core/backoff.h",
     "(last_ns < backoff->limit_ns ?", "(last_ns > 0 && last_ns < backoff->limit_ns ?"),
    ("crowd: pauses have no jitter", "core/backoff.h",
     "random % (backoff->limit_ns - last_ns)", "0 * random"),
    ("crowd: a catalogue says the same spread to any number of nodes", "objects/catalogue/catalogue.c",
     "sl_backoff_spread_ms(catalogue->nodes.count,", "sl_backoff_spread_ms(1,"),
    ("crowd: the connection to the catalogue returns by itself", "objects/node/membership.c",
     "        membership->use.ends_with_connection = true;\n", ""),
]

# Of the members of a job whose coordinator restarts: with --crowd job.
CROWD_JOB_MUTATIONS = [
    ("crowd: a coordinator says the same spread to any number of members", "ps/coordinator/coordinator.c",
     "sl_backoff_spread_ms(\n        members,", "sl_backoff_spread_ms(\n        1,"),
]

ELECTION_MUTATIONS = [
    ("elections: a write does not compare the key's value", "net/store/record_log.c",
     ".was = term->value,", ".was = NULL,"),
    ("elections: a lease counts from the answer to its renewal", "net/store/held_key.c",
     "set_until(held, held->keep.asked_ns);", "set_until(held, held_key_now_of(held));"),
    ("elections: messages do not wait for changes", "net/store/record_log.c",
     "(term->written_number != term->changed_number || ", "("),
    ("elections: a holder has no margin for clocks", "net/store/held_key.c",
     "#define MARGIN_DIVISOR 5", "#define MARGIN_DIVISOR 1000"),
]

POLICY_REPLICA_MUTATIONS = [
    ("policies: evictions are not logged", "ps/server/turn.c",
     "    if (rows.count > 0 && server->role.logs) {",
     "    if (rows.count > SL_SHARD_EVICT_KEYS && server->role.logs) {"),
    ("policies: backups evict rows too", "ps/server/turn.c",
     "    return server->role.serves && server->role.log_room == SL_SERVER_LOG_HAS_ROOM &&\n",
     "    return server->role.log_room == SL_SERVER_LOG_HAS_ROOM &&\n"),
    ("policies: rows are not protected", "ps/table/policy.c",
     "    return age_of(row, step) < policy->protect_steps;",
     "    return age_of(row, step) + 1 < policy->protect_steps;"),
    ("policies: rows go without a reason", "ps/shard/evict.c",
     "    return most > 0 && rows > most ? rows - most : 0;",
     "    return most > 0 && rows + 1 > most ? rows + 1 - most : 0;"),
    ("policies: bsp: a buffered push writes to the record of a row that has gone", "ps/shard/evict.c",
     "    table->holds_erased |= count > 0 && table->buffered_count > 0;\n", ""),
    ("policies: the limit of memory is not kept", "ps/table/slab.c",
     "        (budget->bytes > budget->bytes_max || bytes > budget->bytes_max - budget->bytes)) {",
     "        (budget->bytes > 2 * budget->bytes_max || bytes > 2 * budget->bytes_max - budget->bytes)) {"),
    ("policies: a key that waits gets its row one push early", "ps/shard/key_admission.c",
     "    if (count < wanted) {", "    if (count + 1 < wanted) {"),
    ("policies: a backup's filter begins empty", "ps/shard/load.c",
     "sl_dense_table_put(filter.table, record.key,", "sl_dense_table_put(filter.table, UINT64_MAX,"),
    ("policies: a scan skips a row between two messages", "ps/shard/scan.c",
     "    request->done = request->view.section.start;\n",
     "    request->done = request->view.section.start + (request->view.section.start > 0);\n"),
    ("policies: a scan returns the last row of a message again", "ps/shard/scan.c",
     "    request->done = request->view.section.start;\n",
     "    request->done = request->view.section.start - (request->view.section.start > 0);\n"),
    ("policies: the rows of a dropped table stay", "ps/shard/table_drop.c",
     "    table->dropped = true;\n    shard->drop_count++;\n", "    table->dropped = true;\n"),
    ("policies: a find creates rows", "ps/shard/run.c",
     "        if (finds) {\n", "        if (finds) {\n            (void)sl_shard_find(shard, table, keys, count, true, records, NULL);\n"),
]


POLICY_DISK_MUTATIONS = [
    ("policies: an incremental checkpoint does not list what was evicted", "ps/shard/snapshot_base.c",
     "    for (uint64_t at = base->erased; at < log->end; at++) {",
     "    for (uint64_t at = log->end; at < log->end; at++) {"),
    ("policies: a checkpoint does not restore keys that wait", "ps/shard/load.c",
     ": load_rows(load, table->waiting, slice);", ": read_rows(load, 0, 0, slice, &batch);"),
    ("policies: a row that is evicted during a snapshot is not in it", "ps/table/sparse_table.c",
     "    if (table->hook != NULL) {\n"
     "        table->hook->before_write(table->hook, &record_index, 1);",
     "    if (table->hook != NULL && record_index == SL_ROW_NONE) {\n"
     "        table->hook->before_write(table->hook, &record_index, 1);"),
]


POLICY_PUBLISH_MUTATIONS = [
    ("policies: evicted rows are published", "ps/snapshot/copy_sparse.c",
     "    if (record->count == SL_ROW_ERASED ||\n",
     "    if ((record->count == SL_ROW_ERASED && !copy->since.all) ||\n"),
]


# Kinds of mutations, and the flags of the seeds that find them.
KINDS = [
    (MUTATIONS, []),
    (DPDK_MUTATIONS, ["--transport", "dpdk"]),
    (STRANGER_MUTATIONS, ["--transport", "dpdk", "--strangers"]),
    (DISK_MUTATIONS, ["--disks"]),
    (REPLICA_MUTATIONS, ["--replicas"]),
    (MOVE_MUTATIONS, ["--moves"]),
    (LINK_MUTATIONS, ["--link"]),
    (TRANSFER_MUTATIONS, ["--transfer"]),
    (OBJECT_MUTATIONS, ["--objects"]),
    (SERVE_MUTATIONS, ["--serve"]),
    (PUBLISH_MUTATIONS, ["--publish"]),
    (ELECTION_MUTATIONS, ["--elections"]),
    (POLICY_REPLICA_MUTATIONS, ["--policies", "--replicas"]),
    (POLICY_DISK_MUTATIONS, ["--policies", "--disks"]),
    (POLICY_PUBLISH_MUTATIONS, ["--policies", "--publish"]),
    (CROWD_MUTATIONS, ["--crowd", "objects"]),
    (CROWD_JOB_MUTATIONS, ["--crowd", "job"]),
]
ALL = [mutation for mutations, _ in KINDS for mutation in mutations]


def copy_tree(to):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout.split("\n")
    for path in filter(None, listed):
        source, target = os.path.join(ROOT, path), os.path.join(to, path)
        if not os.path.isfile(source):
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(source, "rb") as file:
            new = file.read()
        if os.path.exists(target):
            with open(target, "rb") as file:
                if file.read() == new:
                    continue
        shutil.copyfile(source, target)
        shutil.copymode(source, target)


def build(work, target="starling-sim"):
    ninja = subprocess.run(["ninja", "-C", os.path.join(work, "build"), target],
                           capture_output=True, text=True, check=False)
    return ninja.returncode == 0, ninja.stdout


def run_unit_test(work, test):
    """What found the defect; None: nothing did."""
    program, name = test.split()
    try:
        run = subprocess.run([os.path.join(work, "build", "tests", "unit", program), name],
                             capture_output=True, check=False, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return test + ": no end"
    return test if run.returncode != 0 else None


def hunt(work, seeds, flags):
    """Seeds until something objects: (what, seeds needed), or (None, seeds run)."""
    program = os.path.join(work, "build", "bin", "starling-sim")
    until = time.monotonic() + SECONDS_MAX
    first = 1
    while first <= seeds and time.monotonic() < until:
        last = min(first + CHUNK - 1, seeds)
        try:
            run = subprocess.run([program, *flags, "--seeds", f"{first}-{last}"],
                                 capture_output=True, text=True, errors="replace", check=False,
                                 timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return "no end", last
        match = re.search(r"^seed (\d+): ([\w -]+):", run.stdout, re.M)
        if match:
            return match.group(2), int(match.group(1))
        if run.returncode != 0:
            return "assertion" if "assertion failed" in run.stderr else "crash", last
        first = last + 1
    return None, first - 1


def try_mutation(work, mutation, seeds):
    name, path, old, new = mutation
    target = os.path.join(work, path)
    with open(target, encoding="utf-8") as file:
        before = file.read()
    if before.count(old) != 1:
        return "does not apply: the source has changed", 0, False
    with open(target, "w", encoding="utf-8") as file:
        file.write(before.replace(old, new))
    try:
        test = UNIT_TESTS.get(name)
        built, words = build(work, test.split()[0] if test else "starling-sim")
        if not built:
            return "does not compile: " + words[-300:], 0, False
        if test:
            what = run_unit_test(work, test)
            return what or "SURVIVES", 0, what is not None
        flags = next(flags for mutations, flags in KINDS if mutation in mutations)
        what, count = hunt(work, seeds, flags)
    finally:
        with open(target, "w", encoding="utf-8") as file:
            file.write(before)
    return (what or "SURVIVES"), count, what is not None


def check_apply():
    """What is wrong with the lists above, as they and the source are now."""
    mutations = ALL
    names = [mutation[0] for mutation in mutations]
    wrong = []
    for name, path, old, new in mutations:
        try:
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                count = file.read().count(old)
        except FileNotFoundError:
            count = 0
        if count != 1:
            wrong.append(f"{name}: stands in {path} {count} times, and has to once")
        if old == new:
            wrong.append(f"{name}: changes nothing")
        if names.count(name) != 1:
            wrong.append(f"{name}: there are several of that name")
    for name in sorted(QUICK | UNIT_TESTS.keys()):
        if name not in names:
            wrong.append(f"{name}: there is no such mutation")
    for name, test in UNIT_TESTS.items():
        source = test.split()[1] + "_test.c"
        if not glob.glob(os.path.join(ROOT, "tests", "unit", "**", source), recursive=True):
            wrong.append(f"{name}: there is no test {test}")
    for line in wrong:
        print(line)
    print(f"{len(mutations)} mutations, {len(wrong)} of them or of their names are outgrown")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", help="where the copy is; else a temporary folder")
    parser.add_argument("--seeds", type=int, default=3000)
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check-apply", action="store_true")
    flags = parser.parse_args()
    if flags.check_apply:
        return check_apply()
    temporary = None if flags.work else tempfile.mkdtemp(prefix="starling-mutations.")
    work = flags.work or temporary
    os.makedirs(work, exist_ok=True)
    survivors = 0
    try:
        copy_tree(work)
        subprocess.run(["cmake", "-S", work, "-B", os.path.join(work, "build"), "-G", "Ninja",
                        "-DCMAKE_BUILD_TYPE=RelWithDebInfo"], check=True, capture_output=True)
        built, words = build(work)
        if not built:
            sys.exit(words)
        print(f"{'mutation':<52} {'found by':<18} seeds")
        for mutation in ALL:
            if flags.only not in mutation[0] or (flags.quick and mutation[0] not in QUICK):
                continue
            what, count, found = try_mutation(work, mutation, flags.seeds)
            survivors += not found
            print(f"{mutation[0]:<52} {what:<18} {count}", flush=True)
    finally:
        if temporary:
            shutil.rmtree(temporary)
    print(f"{survivors} survive" if survivors else "none survives")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
