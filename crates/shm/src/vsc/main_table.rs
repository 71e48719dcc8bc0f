//! The worker's counters, `MAIN.*`.

crate::mapping::counter_set! {
    /// The worker's counters.
    Main / LocalMain { name: "main", order: 10, oneliner: "Main counters", docs: "Events and resources of the worker process." }

    summs: Counter Debug Integer "Flushes of counters"
        "Number of times that a reactor added its own counts to these totals.";
    uptime: Counter Info Duration "Age of the worker" "Seconds since the worker process started.";
    sess_conn: Counter Info Integer "Client connections accepted"
        "Connections from clients that were accepted.";
    sess_fail: Counter Info Integer "Client connections lost at accept"
        "Attempts to accept a connection that failed for any reason. It is the sum of the sess_fail_* counters.";
    sess_fail_econnaborted: Counter Info Integer "Accept failed: client already closed"
        "The client closed its connection before it was accepted. Part of sess_fail, usually harmless.";
    sess_fail_eintr: Counter Info Integer "Accept failed: interrupted"
        "A signal interrupted the accept call. Part of sess_fail, usually harmless.";
    sess_fail_emfile: Counter Info Integer "Accept failed: no file descriptor"
        "The process ran out of file descriptors. Part of sess_fail; raise the limit (RLIMIT_NOFILE, see ulimit -n).";
    sess_fail_ebadf: Counter Info Integer "Accept failed: bad listen socket"
        "The listening descriptor was not valid. Part of sess_fail; it indicates a bug.";
    sess_fail_enomem: Counter Info Integer "Accept failed: no memory"
        "The kernel had no memory for the socket. Part of sess_fail; unusual.";
    sess_fail_other: Counter Info Integer "Accept failed: other reasons"
        "Failures that no other sess_fail_* counter covers; the log tag SessError has the error.";
    client_conn_limited: Counter Info Integer "Connections closed: client_max_connections"
        "Connections that were closed at once because their address already had client_max_connections.";
    client_req_limited: Counter Info Integer "Requests refused with 429: client_max_requests"
        "Requests that were refused because their address already had client_max_requests in progress.";
    client_body_slow: Counter Info Integer "Request bodies aborted: req_body_min_rate"
        "Request bodies that arrived more slowly than req_body_min_rate requires.";
    client_req_400: Counter Info Integer "Requests refused with 400"
        "Requests that were too malformed to be parsed.";
    client_req_417: Counter Info Integer "Requests refused with 417"
        "Requests with an Expect header for an unsupported expectation.";
    client_req: Counter Info Integer "Requests parsed" "Requests from clients that could be parsed.";
    esi_req: Counter Info Integer "Requests for ESI includes"
        "Requests for esi:include elements.";
    cache_hit: Counter Info Integer "Hits"
        "Requests for which the cache had an object that could be delivered without a fetch.";
    cache_hit_grace: Counter Info Integer "Hits on stale objects in grace"
        "Hits on an object past its TTL but within grace. Also counted in cache_hit.";
    cache_hitpass: Counter Info Integer "Hits on a decision to pass"
        "Lookups that found a hit-for-pass object: the stored decision to pass such requests to the backend.";
    cache_hitmiss: Counter Info Integer "Hits on a decision to miss"
        "Lookups that found a hit-for-miss object: the stored decision to fetch without waiting for other fetches of the same key.";
    cache_miss: Counter Info Integer "Misses"
        "Requests for which the object had to be fetched from a backend.";
    beresp_uncacheable: Counter Info Integer "Backend responses not cacheable"
        "Responses that were marked uncacheable, by their headers or by VCL.";
    beresp_shortlived: Counter Info Integer "Short-lived objects"
        "Objects whose TTL, grace and keep together are below the parameter shortlived, and which were stored in Transient.";
    backend_conn: Counter Info Integer "Backend connections opened"
        "Connections to backends that were established.";
    backend_unhealthy: Counter Info Integer "Backend attempts skipped: sick"
        "Fetches not attempted because the backend was sick.";
    backend_busy: Counter Info Integer "Backend attempts skipped: busy"
        "Fetches not attempted because max_connections of the backend were in use.";
    backend_fail: Counter Info Integer "Backend connections that failed"
        "Attempts to connect to a backend that failed.";
    backend_reuse: Counter Info Integer "Backend connections reused"
        "Fetches over a connection that was kept open after an earlier one.";
    backend_recycle: Counter Info Integer "Backend connections kept"
        "Connections that were kept open after a fetch, to be reused unless the backend closes them.";
    backend_breaker: Counter Info Integer "Circuit breakers opened"
        "Addresses to which no more connections were attempted for a while; see the parameter backend_breaker_failures.";
    backend_expired: Counter Info Integer "Backend connections at a limit"
        "Connections that were not kept after a response because of backend_max_requests or backend_max_age.";
    backend_retry: Counter Info Integer "Backend connections retried"
        "Fetches repeated over a new connection because the backend had closed the kept one.";
    backend_surplus: Counter Info Integer "Backend connections with surplus bytes"
        "Backend connections closed because bytes arrived on them that belong to no request. See the parameter backend_suspicion_time for the consequences.";
    backend_surplus_objects: Counter Info Integer "Objects dropped for surplus bytes"
        "Objects removed from the cache because surplus bytes were found later on their connection, or \
         because the connection closed before its responses were verified.";
    backend_interim: Counter Info Integer "Interim backend responses"
        "Responses with a status from 100 to 199 that preceded the final response.";
    backend_wait: Counter Info Integer "Fetches that queued for a connection"
        "Fetches that found max_connections in use and waited for a free one. The backend property wait_limit is the maximum number of waiting fetches.";
    backend_wait_fail: Counter Info Integer "Fetches that queued without success"
        "Fetches that waited for the backend property wait_timeout and did not get a connection.";
    fetch_head: Counter Info Integer "Fetches without body: HEAD"
        "Backend responses without a body because the request was HEAD.";
    fetch_length: Counter Info Integer "Fetches with Content-Length"
        "Backend responses whose body length is given by Content-Length.";
    fetch_chunked: Counter Info Integer "Fetches with chunked body"
        "Backend responses whose body is chunked.";
    fetch_eof: Counter Info Integer "Fetches with body until close"
        "Backend responses whose body ends when the connection closes.";
    fetch_bad: Counter Info Integer "Fetches with invalid body length"
        "Backend responses whose body length could not be determined.";
    fetch_none: Counter Info Integer "Fetches with empty body" "Backend responses with an empty body.";
    fetch_1xx: Counter Info Integer "Fetches without body: 1xx"
        "Backend responses without a body because of a status below 200.";
    fetch_204: Counter Info Integer "Fetches without body: 204"
        "Backend responses without a body because of status 204.";
    fetch_304: Counter Info Integer "Fetches without body: 304"
        "Backend responses without a body because of status 304.";
    fetch_failed: Counter Info Integer "Fetches that failed"
        "Fetches that ended in an error, before or during the body.";
    fetch_retried: Counter Info Integer "Fetches made again" "Retries of fetches without a response; see the parameter backend_retries.";
    fetch_retry_denied: Counter Info Integer "Fetches not made again"
        "Fetches without a response that were not made again because of backend_retry_budget.";
    fetch_stale: Counter Info Integer "Failed fetches with a stale object"
        "Fetches that failed, or whose response was an error, and that a stale object replaced; see the parameter stale_if_error.";
    bgfetch_no_thread: Counter Info Integer "Background fetches not started"
        "Refreshes after a hit in grace that could not be started due to a lack of resources.";
    pools: Gauge Info Integer "Reactors"
        "Number of reactors, each a thread with its own event loop. In Varnish, the number of thread pools.";
    threads: Gauge Info Integer "Threads" "Number of threads that serve requests, including helper threads.";
    threads_limited: Counter Info Integer "Thread limit reached"
        "Number of times that another thread was needed but the limit was reached.";
    threads_created: Counter Info Integer "Threads created" "Threads started since the worker began.";
    threads_destroyed: Counter Info Integer "Threads ended" "Threads that ended since the worker began.";
    threads_failed: Counter Info Integer "Threads that could not start"
        "Failed attempts to start a thread; the log tag Debug has the reason.";
    thread_queue_len: Gauge Info Integer "Tasks waiting" "Tasks that currently wait for a free thread.";
    busy_sleep: Counter Info Integer "Requests that waited for a fetch"
        "Requests that waited because another request was fetching the object.";
    busy_wakeup: Counter Info Integer "Requests woken after waiting"
        "Requests that waited for an object and were resumed.";
    busy_killed: Counter Info Integer "Requests dropped while waiting"
        "Requests that waited for an object and were dropped due to a lack of resources.";
    sess_queued: Counter Info Integer "Sessions queued" "Sessions that had to wait for a thread.";
    sess_dropped: Counter Info Integer "Sessions dropped" "Sessions closed because too many were waiting.";
    req_dropped: Counter Info Integer "Requests refused"
        "HTTP/2 streams refused because too many were waiting.";
    req_reset: Counter Info Integer "Requests abandoned by the client"
        "Requests whose client closed the connection or reset the stream before VCL had finished.";
    fetch_abandoned: Counter Info Integer "Fetches ended without a client"
        "Fetches that ended early because their client was gone and they were uncacheable, or because requests with a client needed their slot.";
    n_waiting: Gauge Info Integer "Requests that wait for a backend"
        "Requests that wait for a backend, for another request's fetch or for a body that is being fetched, and fetches that continue without a client; limited by max_waiting.";
    n_object: Gauge Info Integer "Objects in the cache"
        "Approximate number of responses, with head and body, in the cache.";
    n_vampireobject: Gauge Diag Integer "Objects not yet read back"
        "Objects in persistent storage whose metadata has not been loaded yet.";
    n_objectcore: Gauge Info Integer "Cache entries"
        "Approximate number of cache entries: the objects, the stored decisions (hit-for-pass, hit-for-miss) and the objects being fetched.";
    n_objecthead: Gauge Info Integer "Cache keys"
        "Approximate number of different keys in the cache; variants share one.";
    n_backend: Gauge Info Integer "Backends" "Number of backends in all loaded VCLs.";
    n_expired: Counter Info Integer "Objects expired" "Objects removed because they expired.";
    n_superseded: Counter Diag Integer "Objects replaced"
        "Objects replaced by a newer response for the same key and variant.";
    n_lru_nuked: Counter Info Integer "Objects evicted"
        "Objects removed before they expired, to make room for others.";
    n_lru_moved: Counter Diag Integer "Objects moved on the eviction list"
        "Number of times that an object was moved in the eviction order.";
    n_lru_limited: Counter Info Integer "Evictions at nuke_limit"
        "Allocations that failed because evicting as many objects as the parameter nuke_limit allows did not free enough space.";
    losthdr: Counter Info Integer "Header fields lost"
        "Header fields that exceeded the limits and were dropped.";
    s_sess: Counter Info Integer "Sessions" "Client sessions since the worker began.";
    n_pipe: Gauge Info Integer "Pipes open" "Sessions that are currently piped.";
    pipe_limited: Counter Info Integer "Pipes refused"
        "Sessions not piped because the limit pipe_sess_max was reached.";
    s_pipe: Counter Info Integer "Pipes" "Sessions that were piped.";
    s_upgrade: Counter Info Integer "Upgrades"
        "Requests whose connection became a tunnel, because the origin has agreed to another protocol.";
    s_pass: Counter Info Integer "Passes" "Requests passed to a backend without a cache lookup.";
    s_fetch: Counter Info Integer "Fetches" "Fetches started, including background fetches.";
    s_bgfetch: Counter Info Integer "Background fetches"
        "Fetches started to refresh an object while a stale one was delivered.";
    s_synth: Counter Info Integer "Synthetic responses" "Responses generated by the proxy itself.";
    s_req_hdrbytes: Counter Info Bytes "Bytes of request heads"
        "Bytes of request lines and headers received from clients.";
    s_req_bodybytes: Counter Info Bytes "Bytes of request bodies"
        "Bytes of request bodies received from clients.";
    s_resp_hdrbytes: Counter Info Bytes "Bytes of response heads"
        "Bytes of status lines and headers sent to clients.";
    s_resp_bodybytes: Counter Info Bytes "Bytes of response bodies"
        "Bytes of response bodies sent to clients.";
    s_pipe_hdrbytes: Counter Info Bytes "Bytes of piped request heads"
        "Bytes of request heads received in sessions that became pipes.";
    s_pipe_in: Counter Info Bytes "Bytes piped from clients"
        "Bytes forwarded from clients in piped sessions.";
    s_pipe_out: Counter Info Bytes "Bytes piped to clients" "Bytes forwarded to clients in piped sessions.";
    transit_stored: Counter Diag Bytes "Bytes of bodies stored for one request"
        "Bytes of uncacheable, synthetic and request bodies held in storage as a whole.";
    transit_buffered: Counter Diag Bytes "Bytes of pass bodies in transit buffers"
        "Bytes of uncacheable bodies delivered through a bounded buffer.";
    sess_closed: Counter Info Integer "Sessions closed" "Client sessions that ended without an error.";
    sess_closed_err: Counter Info Integer "Sessions closed on error"
        "Client sessions that ended with an error; the sc_* counters show the reason.";
    sess_readahead: Counter Info Integer "Sessions with a buffered request"
        "Number of times that the next request had already arrived when the previous one was finished.";
    sess_herd: Counter Diag Integer "Sessions gone idle"
        "Number of times that a session was idle for longer than timeout_linger and was set aside.";
    sc_rem_close: Counter Diag Integer "Closed well: REM_CLOSE"
        "Sessions that ended because the client closed.";
    sc_req_close: Counter Diag Integer "Closed well: REQ_CLOSE"
        "Sessions that ended because the client requested it.";
    sc_req_http10: Counter Diag Integer "Closed on error: REQ_HTTP10"
        "Sessions that ended because the client uses a version below HTTP/1.1.";
    sc_rx_bad: Counter Diag Integer "Closed on error: RX_BAD"
        "Sessions that ended because a message was malformed.";
    sc_rx_body: Counter Diag Integer "Closed on error: RX_BODY"
        "Sessions that ended because the request body could not be read.";
    sc_rx_junk: Counter Diag Integer "Closed on error: RX_JUNK"
        "Sessions that ended because the received bytes were not a request.";
    sc_rx_overflow: Counter Diag Integer "Closed on error: RX_OVERFLOW"
        "Sessions that ended because a request was larger than the limits.";
    sc_rx_timeout: Counter Diag Integer "Closed on error: RX_TIMEOUT"
        "Sessions that ended because the client sent too slowly.";
    sc_rx_close_idle: Counter Diag Integer "Closed on error: RX_CLOSE_IDLE"
        "Sessions that ended because no request arrived within timeout_idle.";
    sc_tx_pipe: Counter Diag Integer "Closed well: TX_PIPE" "Sessions that ended after a pipe.";
    sc_tx_error: Counter Diag Integer "Closed on error: TX_ERROR"
        "Sessions that ended because the response could not be sent.";
    sc_tx_eof: Counter Diag Integer "Closed well: TX_EOF"
        "Sessions that ended because only the close could mark the end of the body.";
    sc_resp_close: Counter Diag Integer "Closed well: RESP_CLOSE"
        "Sessions that ended because the backend or VCL requested it.";
    sc_overload: Counter Diag Integer "Closed on error: OVERLOAD"
        "Sessions that ended because a resource was exhausted.";
    sc_pipe_overflow: Counter Diag Integer "Closed on error: PIPE_OVERFLOW"
        "Sessions that ended because too many sessions were piped.";
    sc_range_short: Counter Diag Integer "Closed on error: RANGE_SHORT"
        "Sessions that ended because the body had fewer bytes than the announced range.";
    sc_req_http20: Counter Diag Integer "Closed on error: REQ_HTTP20"
        "Sessions that ended because HTTP/2 is not enabled.";
    sc_vcl_failure: Counter Diag Integer "Closed on error: VCL_FAILURE"
        "Sessions that ended because VCL failed.";
    sc_rapid_reset: Counter Diag Integer "Closed on error: RAPID_RESET"
        "HTTP/2 sessions that ended because the client reset streams faster than the limits allow.";
    h2_reset_limited: Counter Diag Integer "HTTP/2 sessions closed: resets of an address"
        "HTTP/2 sessions that ended because their address had exhausted its budget of rapid resets. Part of sc_rapid_reset.";
    h3_relayed: Counter Diag Integer "HTTP/3 packets for the worker before"
        "Packets over HTTP/3 that arrived after an upgrade for connections of the old worker, and were passed to it.";
    h3_relay_lost: Counter Diag Integer "HTTP/3 packets lost: worker before is busy"
        "Packets for connections of the old worker that were dropped, because too many waited for it.";
    sc_bankrupt: Counter Diag Integer "Closed on error: BANKRUPT"
        "HTTP/2 sessions that ended because no stream received window credit within h2_window_timeout.";
    client_resp_500: Counter Diag Integer "Responses failed: workspace exhausted"
        "Responses that failed because the request's workspace was exhausted during delivery.";
    ws_backend_overflow: Counter Diag Integer "Overflows of workspace_backend"
        "Number of times that a fetch exceeded workspace_backend.";
    ws_client_overflow: Counter Diag Integer "Overflows of workspace_client"
        "Number of times that a request exceeded workspace_client.";
    ws_thread_overflow: Counter Diag Integer "Overflows of workspace_thread"
        "Number of times that a delivery or fetch exceeded workspace_thread.";
    ws_session_overflow: Counter Diag Integer "Overflows of workspace_session"
        "Number of times that a session exceeded workspace_session.";
    shm_records: Counter Diag Integer "Log records" "Records written to the log.";
    shm_writes: Counter Diag Integer "Log writes"
        "Writes to the log; each writes all buffered records of a transaction.";
    shm_flushes: Counter Diag Integer "Log writes before the end"
        "Writes in the middle of a transaction because its records exceeded vsl_buffer.";
    shm_cont: Counter Diag Integer "Log writes that waited" "Writes that had to wait for the log's lock.";
    shm_cycles: Counter Diag Integer "Wraps of the log"
        "Number of times that the writer reached the end of the log and continued at its beginning.";
    shm_bytes: Counter Diag Bytes "Log bytes" "Bytes written to the log.";
    backend_req: Counter Info Integer "Requests to backends" "Requests sent to backends.";
    n_vcl: Gauge Info Integer "VCLs" "Number of loaded VCLs.";
    n_vcl_avail: Gauge Diag Integer "VCLs available" "Number of loaded VCLs that are not discarded.";
    n_vcl_discard: Gauge Diag Integer "VCLs discarded"
        "Number of VCLs that were discarded and are still in use.";
    vcl_fail: Counter Info Integer "VCL failures" "Number of times that VCL ended with a failure.";
    bans: Gauge Info Integer "Bans" "Number of bans on the list, including completed ones.";
    bans_completed: Gauge Diag Integer "Bans completed"
        "Number of bans that need no more testing, because all older objects were tested or a newer ban is identical.";
    bans_obj: Gauge Diag Integer "Bans on objects"
        "Number of bans whose tests use only obj.*, which the lurker can evaluate.";
    bans_req: Gauge Diag Integer "Bans on requests"
        "Number of bans whose tests use req.*, which only a lookup can evaluate.";
    bans_added: Counter Diag Integer "Bans added" "Bans added to the list.";
    bans_deleted: Counter Diag Integer "Bans removed" "Bans removed from the list.";
    bans_tested: Counter Diag Integer "Ban tests at lookup"
        "Number of times that a lookup tested an object against a ban.";
    bans_obj_killed: Counter Diag Integer "Objects banned at lookup"
        "Objects that a lookup found to be banned.";
    bans_lurker_tested: Counter Diag Integer "Ban tests by the lurker"
        "Number of times that the lurker tested an object against a ban.";
    bans_tests_tested: Counter Diag Integer "Ban conditions tested at lookup"
        "Conditions evaluated in the tests that bans_tested counts; a ban may have several.";
    bans_lurker_tests_tested: Counter Diag Integer "Ban conditions tested by the lurker"
        "Conditions evaluated in the tests that bans_lurker_tested counts; a ban may have several.";
    bans_lurker_obj_killed: Counter Diag Integer "Objects banned by the lurker"
        "Objects that the lurker found to be banned.";
    bans_lurker_obj_killed_cutoff: Counter Diag Integer "Objects dropped to shorten the list"
        "Objects that the lurker removed untested to keep the list below the parameter ban_cutoff.";
    bans_dups: Counter Diag Integer "Duplicate bans completed"
        "Bans completed at once because a newer one is identical.";
    bans_lurker_contention: Counter Diag Integer "Lurker waited for lookups"
        "Number of times that the lurker had to wait for lookups.";
    bans_persisted_bytes: Gauge Diag Bytes "Bytes of stored bans"
        "Size of the ban lists in persistent storage.";
    bans_persisted_fragmentation: Gauge Diag Bytes "Bytes of stored bans no longer needed"
        "Bytes in the stored ban lists that belong to removed or completed bans.";
    n_purges: Counter Info Integer "Purges" "Number of times that a key was purged.";
    n_obj_purged: Counter Info Integer "Objects purged" "Objects removed by purges.";
    exp_mailed: Counter Diag Integer "Objects sent to expiry" "Objects that were sent to the expiry queue.";
    exp_received: Counter Diag Integer "Objects received by expiry" "Objects that the expiry queue has received.";
    hcb_nolock: Counter Debug Integer "Lookups without lock"
        "Lookups that found their key without a lock.";
    hcb_lock: Counter Debug Integer "Lookups with lock" "Lookups that took a lock.";
    hcb_insert: Counter Debug Integer "Keys inserted" "Lookups that added a key.";
    esi_errors: Counter Diag Integer "ESI errors" "Errors in ESI markup that made processing impossible.";
    esi_warnings: Counter Diag Integer "ESI warnings" "Errors in ESI markup that could be ignored.";
    vmods: Gauge Info Integer "VMODs" "Number of loaded VMODs.";
    n_gzip: Counter Info Integer "Bodies compressed" "Number of times that a body was gzipped.";
    n_gunzip: Counter Info Integer "Bodies decompressed" "Number of times that a body was gunzipped.";
    n_test_gunzip: Counter Info Integer "Bodies tested"
        "Number of times that a gzipped body was verified while it was stored.";
    reactor_holds: Counter Diag Integer "Tasks that blocked a reactor"
        "Number of times that one task occupied a reactor for longer than the parameter reactor_watchdog, so that the reactor's other clients waited. The log tag Error names the task.";
    http1_iovs_flush: Counter Info Integer "Writes due to the vector limit"
        "Extra writes on HTTP/1 connections because one call accepts a limited number of pieces.";
    http1_absolute_form: Counter Diag Integer "Requests in absolute form"
        "HTTP/1 requests whose target was an absolute URL.";
}
