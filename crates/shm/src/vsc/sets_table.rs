//! The counters other than `MAIN`: the manager's, and those with one set for each backend, store, pool
//! or lock.

use crate::mapping::counter_set;

counter_set! {
    Mgt / LocalMgt { name: "mgt", order: 20, oneliner: "Management process counters", docs: "Starts and ends of worker processes." }

    uptime: Counter Info Duration "Age of the manager" "Seconds since the management process started.";
    child_start: Counter Diag Integer "Workers started" "Number of times that a worker process was started.";
    child_exit: Counter Diag Integer "Workers ended without error"
        "Number of times that a worker process ended without an error.";
    child_stop: Counter Diag Integer "Workers ended with error"
        "Number of times that a worker process ended with an error status.";
    child_died: Counter Diag Integer "Workers killed by a signal"
        "Number of times that a signal ended a worker process.";
    child_dump: Counter Diag Integer "Workers that dumped core"
        "Number of times that a worker process dumped core.";
    child_panic: Counter Diag Integer "Workers that panicked"
        "Number of times that a worker process wrote a panic message.";
}

counter_set! {
    Mempool / LocalMempool { name: "mempool", order: 30, oneliner: "Memory pool counters", docs: "One set for each kind of pooled structure." }

    live: Gauge Debug Integer "In use" "Structures in use.";
    pool: Gauge Debug Integer "In the pool" "Free structures in the pool.";
    sz_wanted: Gauge Debug Bytes "Bytes requested" "Requested size of a structure.";
    sz_actual: Gauge Debug Bytes "Bytes allocated" "Actual size of a structure.";
    allocs: Counter Debug Integer "Allocations" "Structures allocated, from the pool or from memory.";
    frees: Counter Debug Integer "Frees" "Structures freed, to the pool or to memory.";
    recycle: Counter Debug Integer "Allocations from the pool" "Structures allocated from the pool.";
    timeout: Counter Debug Integer "Freed by age"
        "Structures removed from the pool because they were unused for long.";
    toosmall: Counter Debug Integer "Freed as too small"
        "Structures freed because the requested size has increased.";
    surplus: Counter Debug Integer "Freed as too many" "Structures freed because the pool was full.";
    randry: Counter Debug Integer "Pool was empty"
        "Number of times that the pool was empty and a structure was allocated from memory.";
}

counter_set! {
    Sma / LocalSma { name: "sma", order: 40, oneliner: "Memory storage counters", docs: "One set for each store in memory." }

    c_req: Counter Info Integer "Allocations requested" "Number of requests for space.";
    c_fail: Counter Info Integer "Allocations failed" "Number of requests that failed for lack of space.";
    c_bytes: Counter Info Bytes "Bytes allocated" "Total bytes allocated since the start.";
    c_freed: Counter Info Bytes "Bytes freed" "Total bytes freed since the start.";
    g_alloc: Gauge Info Integer "Allocations" "Current number of allocations.";
    g_bytes: Gauge Info Bytes "Bytes in use" "Bytes currently allocated.";
    g_space: Gauge Info Bytes "Bytes free" "Bytes that are available.";
}

counter_set! {
    Smf / LocalSmf { name: "smf", order: 50, oneliner: "File storage counters", docs: "One set for each store in a file." }

    c_req: Counter Info Integer "Allocations requested" "Number of requests for space.";
    c_fail: Counter Info Integer "Allocations failed" "Number of requests that failed for lack of space.";
    c_bytes: Counter Info Bytes "Bytes allocated" "Total bytes allocated since the start.";
    c_freed: Counter Info Bytes "Bytes freed" "Total bytes freed since the start.";
    g_alloc: Gauge Info Integer "Allocations" "Current number of allocations.";
    g_bytes: Gauge Info Bytes "Bytes in use" "Bytes currently allocated.";
    g_space: Gauge Info Bytes "Bytes free" "Bytes that are available.";
    g_smf: Gauge Info Integer "Extents" "Number of extents, free and used.";
    g_smf_frag: Gauge Info Integer "Small free extents" "Number of free extents too small for most bodies.";
    g_smf_large: Gauge Info Integer "Large free extents" "Number of large free extents.";
}

counter_set! {
    Smu / LocalSmu { name: "smu", order: 40, oneliner: "Umem storage counters", docs: "One set for each store in libumem, which exists on Solaris only." }

    c_req: Counter Info Integer "Allocations requested" "Number of requests for space.";
    c_fail: Counter Info Integer "Allocations failed" "Number of requests that failed for lack of space.";
    c_bytes: Counter Info Bytes "Bytes allocated" "Total bytes allocated since the start.";
    c_freed: Counter Info Bytes "Bytes freed" "Total bytes freed since the start.";
    g_alloc: Gauge Info Integer "Allocations" "Current number of allocations.";
    g_bytes: Gauge Info Bytes "Bytes in use" "Bytes currently allocated.";
    g_space: Gauge Info Bytes "Bytes free" "Bytes that are available.";
}

counter_set! {
    Vbe / LocalVbe { name: "vbe", order: 60, oneliner: "Backend counters", docs: "One set for each backend, named VCL.backend." }

    happy: Bitmap Info Bitmap "Recent probes"
        "The latest probes, one bit each, the latest in the lowest bit; a set bit is a good response.";
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
    conn: Gauge Info Integer "Concurrent connections used"
        "Connections that a fetch or pipe is using, without the open ones kept for reuse.";
    req: Counter Info Integer "Requests" "Requests sent.";
    unhealthy: Counter Info Integer "Skipped: sick" "Fetches not attempted because the backend was sick.";
    busy: Counter Info Integer "Skipped: busy"
        "Fetches not attempted because max_connections were in use.";
    fail: Counter Info Integer "Connections that failed"
        "Failed attempts to connect; the fail_* counters and the log tag FetchError show the reason.";
    fail_eacces: Counter Diag Integer "Failed: EACCES or EPERM"
        "Attempts to connect that the system denied.";
    fail_eaddrnotavail: Counter Diag Integer "Failed: EADDRNOTAVAIL"
        "Attempts to connect for which no local address or port was free.";
    fail_econnrefused: Counter Diag Integer "Failed: ECONNREFUSED"
        "Attempts to connect that the backend refused.";
    fail_enetunreach: Counter Diag Integer "Failed: ENETUNREACH"
        "Attempts to connect to a network without a route.";
    fail_etimedout: Counter Diag Integer "Failed: ETIMEDOUT" "Attempts to connect that took too long.";
    fail_other: Counter Diag Integer "Failed: other reasons"
        "Attempts to connect that failed for another reason.";
    helddown: Counter Diag Integer "Skipped: held down"
        "Attempts skipped because the last failure was recent (backend_local_error_holddown, backend_remote_error_holddown, backend_breaker_failures).";
    healthy: Gauge Info Integer "Healthy: 1, sick: 0"
        "Whether fetches use the backend: by its probe, its circuit breaker, and backend.set_health.";
    set_health: Gauge Diag Integer "Health set by an operator"
        "0 if the probe decides, 1 if backend.set_health has set the backend healthy, 2 if sick.";
}

counter_set! {
    Lck / LocalLck { name: "lck", order: 70, oneliner: "Lock counters", docs: "One set for each class of locks." }

    creat: Counter Debug Integer "Locks created" "Locks created.";
    destroy: Counter Debug Integer "Locks destroyed" "Locks destroyed.";
    locks: Counter Debug Integer "Locked" "Number of times that a lock was acquired.";
    dbg_busy: Counter Debug Integer "Waited"
        "Number of times that a lock was held and a thread waited for it; counted only with the debug bit lck.";
    dbg_try_fail: Counter Debug Integer "Try failed"
        "Number of times that trying a lock failed because it was held; counted only with the debug bit lck.";
}

counter_set! {
    Waiter / LocalWaiter { name: "waiter", order: 80, oneliner: "Waiter counters", docs: "One set for each reactor's idle connections." }

    conns: Gauge Debug Integer "Idle connections" "Connections that are currently idle.";
    remclose: Counter Debug Integer "Closed by the peer" "Idle connections that the peer closed.";
    timeout: Counter Debug Integer "Timed out" "Idle connections that were idle for too long.";
    action: Counter Debug Integer "Became active" "Idle connections on which bytes arrived.";
}

counter_set! {
    Vcp / LocalVcp { name: "vcp", order: 65, oneliner: "Connection pool counters", docs: "Pools of backend connections. Backends with the same address share a pool." }

    ref_hit: Counter Debug Integer "Pools shared" "Number of times that a backend found a pool for its address.";
    ref_miss: Counter Debug Integer "Pools created" "Number of times that a pool was created for a backend.";
}

counter_set! {
    Disk / LocalDisk { name: "DISK", order: 45, oneliner: "Counters of stores on disks", docs: "One set for each storage of the kind disk. Its memory has the set SMA." }

    g_objects: Gauge Info Integer "Objects" "Number of objects on the disk.";
    g_index_bytes: Gauge Info Bytes "Index" "Memory of the index in bytes.";
    g_segments: Gauge Info Integer "Segments in use" "Number of segments that contain objects.";
    g_segments_free: Gauge Info Integer "Segments not in use" "Number of segments that contain no objects.";
    g_queued_bytes: Gauge Info Bytes "Bytes queued" "Bytes that wait to be written.";
    g_failed: Gauge Info Integer "Failed" "1 if the disk has failed and is not used.";
    g_state: Gauge Info Integer "State"
        "0 while the index is read, 1 if the disk works, 2 if it does not respond, 3 if it has failed.";
    c_recovered: Counter Info Integer "Objects recovered" "Objects that were found on the disk at the start.";
    c_written: Counter Info Integer "Objects written" "Objects that were written.";
    c_written_bytes: Counter Info Bytes "Bytes of objects written" "Bytes of the objects that were written.";
    c_device_bytes: Counter Info Bytes "Bytes written" "Bytes that were written to the disk, with everything.";
    c_moved: Counter Info Integer "Objects moved" "Objects in use that were written again when their segment was reused.";
    c_evicted: Counter Info Integer "Objects evicted" "Objects that left the disk when their segment was reused.";
    c_refused: Counter Info Integer "Objects refused" "Objects that were not written because too many bytes waited.";
    c_postponed: Counter Info Integer "Objects requested once"
        "Objects that were not written because they were requested once (disk_admission).";
    c_reads: Counter Info Integer "Reads" "Reads of objects.";
    c_read_bytes: Counter Info Bytes "Bytes read" "Bytes of objects that were read.";
    c_lent: Counter Info Integer "Objects sent from reads"
        "Objects that were sent from the memory of their read and did not move to memory.";
    c_damaged: Counter Info Integer "Objects damaged" "Objects that were removed because their checksum was wrong.";
    c_segments_lost: Counter Info Integer "Segments lost"
        "Segments whose objects were dropped because the segment could not be read.";
    c_errors: Counter Info Integer "Errors" "Reads, writes and flushes that failed.";
    c_read_errors: Counter Info Integer "Read errors" "Reads that failed.";
    c_write_errors: Counter Info Integer "Write errors" "Writes and flushes that failed.";
    c_slow: Counter Info Integer "Slow operations" "Reads, writes and flushes that took more than a second.";
    c_journaled: Counter Info Integer "Journal records" "Purges and bans that were recorded.";
    c_pinned: Counter Info Integer "Segments kept" "Segments that could not be reused because responses were sent from them.";
    c_cleared: Counter Info Integer "Contents dropped" "Times at which all objects were dropped because the journal was full or damaged.";
}

counter_set! {
    Selector / LocalSelector { name: "selector", order: 95, oneliner: "Counters of sets of strings", docs: "One set for each selector object whose program calls create_stats(), named VCL.object. The values are constant." }

    elements: Gauge Debug Integer "Strings" "Number of strings in the set.";
    setsz: Gauge Debug Bytes "Bytes of all strings" "Sum of the lengths of the strings, each with one byte for its end.";
    minlen: Gauge Debug Bytes "Shortest string" "Length of the shortest string.";
    maxlen: Gauge Debug Bytes "Longest string" "Length of the longest string.";
}

counter_set! {
    Xkey / LocalXkey { name: "XKEY", order: 90, oneliner: "Counters of purging by tags", docs: "Shown when a VCL imports the module xkey. The sizes are those that Varnish's module would need." }

    g_keys: Gauge Info Integer "Tags" "Tags that objects in the cache have.";
    g_hashhead_bytes: Gauge Diag Bytes "Bytes for tags" "Bytes for all tags.";
    g_ochead_bytes: Gauge Diag Bytes "Bytes for objects" "Bytes for all objects with tags.";
    g_oc_bytes: Gauge Diag Bytes "Bytes for pairs" "Bytes for all pairs of an object and one of its tags.";
    g_bytes: Gauge Info Bytes "Bytes in total" "Bytes for tags, objects and pairs.";
}
