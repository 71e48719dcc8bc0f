//! The counters besides `MAIN`: the manager's, and those of which there is one set per backend, store, pool
//! or lock.

use crate::mapping::counter_set;

counter_set! {
    Mgt / LocalMgt { name: "mgt", order: 20, oneliner: "Management process counters", docs: "What the manager has seen of its worker processes." }

    uptime: Counter Info Duration "Age of the manager" "Seconds since the management process started.";
    child_start: Counter Diag Integer "Workers started" "How often a worker process was started.";
    child_exit: Counter Diag Integer "Workers ended as told"
        "How often a worker process ended in good order.";
    child_stop: Counter Diag Integer "Workers ended unasked"
        "How often a worker process ended with a status that says something was wrong.";
    child_died: Counter Diag Integer "Workers killed by a signal"
        "How often a signal ended a worker process.";
    child_dump: Counter Diag Integer "Workers that dumped core"
        "How often a worker process left a core dump.";
    child_panic: Counter Diag Integer "Workers that panicked"
        "How often a worker process left a panic message.";
}

counter_set! {
    Mempool / LocalMempool { name: "mempool", order: 30, oneliner: "Memory pool counters", docs: "One set for each kind of structure that is kept for reuse." }

    live: Gauge Debug Integer "In use" "Structures in use.";
    pool: Gauge Debug Integer "Kept ready" "Structures free and kept for reuse.";
    sz_wanted: Gauge Debug Bytes "Bytes asked for" "Size that was asked for.";
    sz_actual: Gauge Debug Bytes "Bytes given" "Size that a structure really has.";
    allocs: Counter Debug Integer "Taken" "Structures taken into use.";
    frees: Counter Debug Integer "Given back" "Structures given back.";
    recycle: Counter Debug Integer "Taken from the pool" "Structures taken into use that were kept for it.";
    timeout: Counter Debug Integer "Freed by age"
        "Kept structures freed because they were not needed for long.";
    toosmall: Counter Debug Integer "Freed as too small"
        "Structures freed because the size has been raised since.";
    surplus: Counter Debug Integer "Freed as too many" "Structures freed because enough were kept.";
    randry: Counter Debug Integer "Pool was empty"
        "How often a structure had to be made because none was kept.";
}

counter_set! {
    Sma / LocalSma { name: "sma", order: 40, oneliner: "Memory storage counters", docs: "One set for each store in memory." }

    c_req: Counter Info Integer "Allocations asked for" "How often room was asked for.";
    c_fail: Counter Info Integer "Allocations refused" "How often there was no room.";
    c_bytes: Counter Info Bytes "Bytes allocated" "Bytes given out since the beginning.";
    c_freed: Counter Info Bytes "Bytes freed" "Bytes given back since the beginning.";
    g_alloc: Gauge Info Integer "Allocations" "Number of allocations at the moment.";
    g_bytes: Gauge Info Bytes "Bytes in use" "Bytes given out at the moment.";
    g_space: Gauge Info Bytes "Bytes free" "Bytes that are left.";
}

counter_set! {
    Smf / LocalSmf { name: "smf", order: 50, oneliner: "File storage counters", docs: "One set for each store in a file." }

    c_req: Counter Info Integer "Allocations asked for" "How often room was asked for.";
    c_fail: Counter Info Integer "Allocations refused" "How often there was no room.";
    c_bytes: Counter Info Bytes "Bytes allocated" "Bytes given out since the beginning.";
    c_freed: Counter Info Bytes "Bytes freed" "Bytes given back since the beginning.";
    g_alloc: Gauge Info Integer "Allocations" "Number of allocations at the moment.";
    g_bytes: Gauge Info Bytes "Bytes in use" "Bytes given out at the moment.";
    g_space: Gauge Info Bytes "Bytes free" "Bytes that are left.";
    g_smf: Gauge Info Integer "Extents" "Number of extents, free and used.";
    g_smf_frag: Gauge Info Integer "Small free extents" "Number of free extents too small for most bodies.";
    g_smf_large: Gauge Info Integer "Large free extents" "Number of large free extents.";
}

counter_set! {
    Smu / LocalSmu { name: "smu", order: 40, oneliner: "Umem storage counters", docs: "One set for each store in libumem, which exists on Solaris only." }

    c_req: Counter Info Integer "Allocations asked for" "How often room was asked for.";
    c_fail: Counter Info Integer "Allocations refused" "How often there was no room.";
    c_bytes: Counter Info Bytes "Bytes allocated" "Bytes given out since the beginning.";
    c_freed: Counter Info Bytes "Bytes freed" "Bytes given back since the beginning.";
    g_alloc: Gauge Info Integer "Allocations" "Number of allocations at the moment.";
    g_bytes: Gauge Info Bytes "Bytes in use" "Bytes given out at the moment.";
    g_space: Gauge Info Bytes "Bytes free" "Bytes that are left.";
}

counter_set! {
    Vbe / LocalVbe { name: "vbe", order: 60, oneliner: "Backend counters", docs: "One set for each backend, named after its VCL and itself." }

    happy: Bitmap Info Bitmap "Recent probes"
        "The latest probes, a bit each, the latest lowest; a set bit is a good answer.";
    bereq_hdrbytes: Counter Info Bytes "Bytes of request heads" "Bytes of request lines and headers sent.";
    bereq_bodybytes: Counter Info Bytes "Bytes of request bodies" "Bytes of request bodies sent.";
    beresp_hdrbytes: Counter Info Bytes "Bytes of response heads"
        "Bytes of status lines and headers received.";
    beresp_bodybytes: Counter Info Bytes "Bytes of response bodies" "Bytes of response bodies received.";
    pipe_hdrbytes: Counter Info Bytes "Bytes of piped request heads"
        "Bytes of request heads sent for piped sessions.";
    pipe_out: Counter Info Bytes "Bytes piped to the backend"
        "Bytes forwarded to the backend in piped sessions.";
    pipe_in: Counter Info Bytes "Bytes piped from the backend"
        "Bytes forwarded from the backend in piped sessions.";
    conn: Gauge Info Integer "Connections in use"
        "Connections that a fetch or pipe is using. There may be more open ones, kept for reuse.";
    req: Counter Info Integer "Requests" "Requests sent.";
    unhealthy: Counter Info Integer "Skipped: sick" "Fetches not attempted because the backend was sick.";
    busy: Counter Info Integer "Skipped: too many"
        "Fetches not attempted because max_connections were in use.";
    fail: Counter Info Integer "Connections that failed"
        "Failed attempts to connect; the fail_* counters and the log tag FetchError say why.";
    fail_eacces: Counter Diag Integer "Failed: EACCES or EPERM"
        "Attempts to connect that the system did not permit.";
    fail_eaddrnotavail: Counter Diag Integer "Failed: EADDRNOTAVAIL"
        "Attempts to connect for which no local address or port was free.";
    fail_econnrefused: Counter Diag Integer "Failed: ECONNREFUSED"
        "Attempts to connect that the backend refused.";
    fail_enetunreach: Counter Diag Integer "Failed: ENETUNREACH"
        "Attempts to connect to a network without a route.";
    fail_etimedout: Counter Diag Integer "Failed: ETIMEDOUT" "Attempts to connect that took too long.";
    fail_other: Counter Diag Integer "Failed: other reasons"
        "Attempts to connect that failed in some other way.";
    helddown: Counter Diag Integer "Skipped: held down"
        "Attempts not made because the last failure was recent (backend_local_error_holddown, backend_remote_error_holddown).";
}

counter_set! {
    Lck / LocalLck { name: "lck", order: 70, oneliner: "Lock counters", docs: "One set for each class of locks." }

    creat: Counter Debug Integer "Locks made" "Locks created.";
    destroy: Counter Debug Integer "Locks unmade" "Locks destroyed.";
    locks: Counter Debug Integer "Locked" "How often a lock was taken.";
    dbg_busy: Counter Debug Integer "Waited"
        "How often a lock was taken already and had to be waited for; counted only with the debug bit lck.";
    dbg_try_fail: Counter Debug Integer "Tried in vain"
        "How often a lock was tried and found taken; counted only with the debug bit lck.";
}

counter_set! {
    Waiter / LocalWaiter { name: "waiter", order: 80, oneliner: "Waiter counters", docs: "One set for each reactor's idle connections." }

    conns: Gauge Debug Integer "Idle connections" "Connections that are idle at the moment.";
    remclose: Counter Debug Integer "Closed by the peer" "Idle connections that the peer closed.";
    timeout: Counter Debug Integer "Timed out" "Idle connections that were idle for too long.";
    action: Counter Debug Integer "Became active" "Idle connections on which something arrived.";
}

counter_set! {
    Vcp / LocalVcp { name: "vcp", order: 65, oneliner: "Connection pool counters", docs: "The pools of backend connections, of which backends with the same address share one." }

    ref_hit: Counter Debug Integer "Pools shared" "How often a backend found a pool for its address.";
    ref_miss: Counter Debug Integer "Pools made" "How often a backend's pool had to be made.";
}

counter_set! {
    Xkey / LocalXkey { name: "XKEY", order: 90, oneliner: "Counters of purging by tags", docs: "Shown once a VCL imports the module xkey. The sizes are those that Varnish's module takes for the same." }

    g_keys: Gauge Info Integer "Tags" "Tags that objects in the cache have.";
    g_hashhead_bytes: Gauge Diag Bytes "Bytes for tags" "Bytes for all tags.";
    g_ochead_bytes: Gauge Diag Bytes "Bytes for objects" "Bytes for all objects with tags.";
    g_oc_bytes: Gauge Diag Bytes "Bytes for pairs" "Bytes for all pairs of an object and a tag of it.";
    g_bytes: Gauge Info Bytes "Bytes in all" "Bytes for tags, objects and pairs.";
}
