//! The counters besides `MAIN`: the manager's, and those of which there is one set per backend, store, pool
//! or lock.

use crate::mapping::counter_set;

counter_set! {
    Mgt / LocalMgt { name: "mgt", order: 20, oneliner: "", docs: "" }

    uptime: Counter Info Duration "" "";
    child_start: Counter Diag Integer "" "";
    child_exit: Counter Diag Integer "" "";
    child_stop: Counter Diag Integer "" "";
    child_died: Counter Diag Integer "" "";
    child_dump: Counter Diag Integer "" "";
    child_panic: Counter Diag Integer "" "";
}

counter_set! {
    Mempool / LocalMempool { name: "mempool", order: 30, oneliner: "", docs: "" }

    live: Gauge Debug Integer "" "";
    pool: Gauge Debug Integer "" "";
    sz_wanted: Gauge Debug Bytes "" "";
    sz_actual: Gauge Debug Bytes "" "";
    allocs: Counter Debug Integer "" "";
    frees: Counter Debug Integer "" "";
    recycle: Counter Debug Integer "" "";
    timeout: Counter Debug Integer "" "";
    toosmall: Counter Debug Integer "" "";
    surplus: Counter Debug Integer "" "";
    randry: Counter Debug Integer "" "";
}

counter_set! {
    Sma / LocalSma { name: "sma", order: 40, oneliner: "", docs: "" }

    c_req: Counter Info Integer "" "";
    c_fail: Counter Info Integer "" "";
    c_bytes: Counter Info Bytes "" "";
    c_freed: Counter Info Bytes "" "";
    g_alloc: Gauge Info Integer "" "";
    g_bytes: Gauge Info Bytes "" "";
    g_space: Gauge Info Bytes "" "";
}

counter_set! {
    Smf / LocalSmf { name: "smf", order: 50, oneliner: "", docs: "" }

    c_req: Counter Info Integer "" "";
    c_fail: Counter Info Integer "" "";
    c_bytes: Counter Info Bytes "" "";
    c_freed: Counter Info Bytes "" "";
    g_alloc: Gauge Info Integer "" "";
    g_bytes: Gauge Info Bytes "" "";
    g_space: Gauge Info Bytes "" "";
    g_smf: Gauge Info Integer "" "";
    g_smf_frag: Gauge Info Integer "" "";
    g_smf_large: Gauge Info Integer "" "";
}

counter_set! {
    Smu / LocalSmu { name: "smu", order: 40, oneliner: "", docs: "" }

    c_req: Counter Info Integer "" "";
    c_fail: Counter Info Integer "" "";
    c_bytes: Counter Info Bytes "" "";
    c_freed: Counter Info Bytes "" "";
    g_alloc: Gauge Info Integer "" "";
    g_bytes: Gauge Info Bytes "" "";
    g_space: Gauge Info Bytes "" "";
}

counter_set! {
    Vbe / LocalVbe { name: "vbe", order: 60, oneliner: "", docs: "" }

    happy: Bitmap Info Bitmap "" "";
    bereq_hdrbytes: Counter Info Bytes "" "";
    bereq_bodybytes: Counter Info Bytes "" "";
    beresp_hdrbytes: Counter Info Bytes "" "";
    beresp_bodybytes: Counter Info Bytes "" "";
    pipe_hdrbytes: Counter Info Bytes "" "";
    pipe_out: Counter Info Bytes "" "";
    pipe_in: Counter Info Bytes "" "";
    conn: Gauge Info Integer "" "";
    req: Counter Info Integer "" "";
    unhealthy: Counter Info Integer "" "";
    busy: Counter Info Integer "" "";
    fail: Counter Info Integer "" "";
    fail_eacces: Counter Diag Integer "" "";
    fail_eaddrnotavail: Counter Diag Integer "" "";
    fail_econnrefused: Counter Diag Integer "" "";
    fail_enetunreach: Counter Diag Integer "" "";
    fail_etimedout: Counter Diag Integer "" "";
    fail_other: Counter Diag Integer "" "";
    helddown: Counter Diag Integer "" "";
}

counter_set! {
    Lck / LocalLck { name: "lck", order: 70, oneliner: "", docs: "" }

    creat: Counter Debug Integer "" "";
    destroy: Counter Debug Integer "" "";
    locks: Counter Debug Integer "" "";
    dbg_busy: Counter Debug Integer "" "";
    dbg_try_fail: Counter Debug Integer "" "";
}

counter_set! {
    Waiter / LocalWaiter { name: "waiter", order: 80, oneliner: "", docs: "" }

    conns: Gauge Debug Integer "" "";
    remclose: Counter Debug Integer "" "";
    timeout: Counter Debug Integer "" "";
    action: Counter Debug Integer "" "";
}

counter_set! {
    Vcp / LocalVcp { name: "vcp", order: 65, oneliner: "", docs: "" }

    ref_hit: Counter Debug Integer "" "";
    ref_miss: Counter Debug Integer "" "";
}
