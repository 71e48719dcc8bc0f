//! The worker's counters, `MAIN.*`.

crate::mapping::counter_set! {
    /// The worker's counters.
    Main / LocalMain { name: "main", order: 10, oneliner: "Main counters", docs: "What the worker process has done and holds." }

    summs: Counter Debug Integer "Rounds of adding up"
        "How often a reactor added what it had counted to the totals shown here.";
    uptime: Counter Info Duration "Age of the worker" "Seconds since the worker process started.";
    sess_conn: Counter Info Integer "Client connections accepted"
        "Connections from clients that were accepted.";
    sess_fail: Counter Info Integer "Client connections lost at accept"
        "Attempts to accept a connection that failed, whatever the reason. The sess_fail_* counters say which; together they make this number.";
    sess_fail_econnaborted: Counter Info Integer "Accept failed: client already gone"
        "The client closed before its connection was accepted. Part of sess_fail, usually harmless.";
    sess_fail_eintr: Counter Info Integer "Accept failed: interrupted"
        "A signal interrupted the accept call. Part of sess_fail, usually harmless.";
    sess_fail_emfile: Counter Info Integer "Accept failed: no file descriptor"
        "The process ran out of file descriptors. Part of sess_fail; raise the limit (RLIMIT_NOFILE, see ulimit -n).";
    sess_fail_ebadf: Counter Info Integer "Accept failed: bad listen socket"
        "The listening descriptor was not valid. Part of sess_fail; it points at a fault in the program.";
    sess_fail_enomem: Counter Info Integer "Accept failed: no memory"
        "The kernel had no memory for the socket. Part of sess_fail; should not happen.";
    sess_fail_other: Counter Info Integer "Accept failed: other reasons"
        "Whatever the other sess_fail_* counters do not name; the log tag SessError says what it was.";
    client_conn_limited: Counter Info Integer "Connections closed: client_max_connections"
        "Connections that were closed at once because their address had client_max_connections already.";
    client_req_limited: Counter Info Integer "Requests answered with 429: client_max_requests"
        "Requests that were refused because their address had client_max_requests at work already.";
    client_body_slow: Counter Info Integer "Request bodies given up: req_body_min_rate"
        "Request bodies that came slower than req_body_min_rate allows.";
    client_req_400: Counter Info Integer "Requests answered with 400"
        "Requests so malformed that nothing could be made of them.";
    client_req_417: Counter Info Integer "Requests answered with 417"
        "Requests with an Expect header that asks for what is not offered.";
    client_req: Counter Info Integer "Requests understood" "Requests from clients that could be parsed.";
    esi_req: Counter Info Integer "Requests for ESI includes"
        "Requests made on behalf of esi:include elements.";
    cache_hit: Counter Info Integer "Hits"
        "Requests answered with an object from the cache, without asking a backend first.";
    cache_hit_grace: Counter Info Integer "Hits on stale objects in grace"
        "Hits on an object past its TTL but within grace. Also counted in cache_hit.";
    cache_hitpass: Counter Info Integer "Hits on a decision to pass"
        "Lookups that found a hit-for-pass object: the remembered decision to pass such requests on to the backend.";
    cache_hitmiss: Counter Info Integer "Hits on a decision to miss"
        "Lookups that found a hit-for-miss object: the remembered decision to fetch without waiting for others who fetch the same.";
    cache_miss: Counter Info Integer "Misses"
        "Requests for which the object had to be fetched from a backend.";
    beresp_uncacheable: Counter Info Integer "Backend responses not cacheable"
        "Responses that were marked uncacheable, by their headers or by VCL.";
    beresp_shortlived: Counter Info Integer "Short-lived objects"
        "Objects whose TTL, grace and keep together stay below the parameter shortlived, and which went to Transient storage.";
    backend_conn: Counter Info Integer "Backend connections opened"
        "Connections to backends that were established.";
    backend_unhealthy: Counter Info Integer "Backend attempts skipped: sick"
        "Fetches not attempted because the backend was sick.";
    backend_busy: Counter Info Integer "Backend attempts skipped: too many"
        "Fetches not attempted because the backend had its max_connections in use.";
    backend_fail: Counter Info Integer "Backend connections that failed"
        "Attempts to connect to a backend that failed.";
    backend_reuse: Counter Info Integer "Backend connections used again"
        "Fetches over a connection that had been kept open after an earlier one.";
    backend_recycle: Counter Info Integer "Backend connections kept"
        "Connections that were put aside after a fetch, to be used again unless the backend closes them.";
    backend_retry: Counter Info Integer "Backend connections retried"
        "Fetches repeated over a fresh connection because a kept one turned out to be closed.";
    backend_surplus: Counter Info Integer "Backend connections with surplus bytes"
        "Backend connections closed because bytes arrived on them that belong to no request. The parameter backend_suspicion_time says what follows.";
    backend_surplus_objects: Counter Info Integer "Objects dropped for surplus bytes"
        "Objects removed from the cache because surplus bytes were found later on the connection they came over, or \
         because it closed before its responses were known to be in order.";
    backend_interim: Counter Info Integer "Interim backend responses"
        "Responses with a status from 100 to 199 that came before the final response.";
    backend_wait: Counter Info Integer "Fetches that queued for a connection"
        "Fetches that found max_connections in use and waited for one to become free. The backend property wait_limit says how many may wait.";
    backend_wait_fail: Counter Info Integer "Fetches that queued in vain"
        "Fetches that waited as long as the backend property wait_timeout allows and did not get a connection.";
    fetch_head: Counter Info Integer "Fetches without body: HEAD"
        "Backend responses without a body because the request was HEAD.";
    fetch_length: Counter Info Integer "Fetches with Content-Length"
        "Backend responses whose body was as long as Content-Length said.";
    fetch_chunked: Counter Info Integer "Fetches with chunked body"
        "Backend responses whose body came in chunks.";
    fetch_eof: Counter Info Integer "Fetches with body until close"
        "Backend responses whose body ended with the connection.";
    fetch_bad: Counter Info Integer "Fetches with unclear body"
        "Backend responses of whose body the length could not be told.";
    fetch_none: Counter Info Integer "Fetches with empty body" "Backend responses whose body was empty.";
    fetch_1xx: Counter Info Integer "Fetches without body: 1xx"
        "Backend responses without a body because of a status below 200.";
    fetch_204: Counter Info Integer "Fetches without body: 204"
        "Backend responses without a body because of status 204.";
    fetch_304: Counter Info Integer "Fetches without body: 304"
        "Backend responses without a body because of status 304.";
    fetch_failed: Counter Info Integer "Fetches that failed"
        "Fetches that ended in an error, before or within the body.";
    bgfetch_no_thread: Counter Info Integer "Background fetches not begun"
        "Refreshes after a hit in grace that could not be started for want of resources.";
    pools: Gauge Info Integer "Reactors"
        "Number of reactors, each a thread with an event loop of its own. Varnish counts thread pools here.";
    threads: Gauge Info Integer "Threads" "Number of threads that serve requests, helpers included.";
    threads_limited: Counter Info Integer "Thread limit reached"
        "How often another thread would have been wanted but the limit was reached.";
    threads_created: Counter Info Integer "Threads created" "Threads started since the worker began.";
    threads_destroyed: Counter Info Integer "Threads ended" "Threads that ended since the worker began.";
    threads_failed: Counter Info Integer "Threads that could not start"
        "Failed attempts to start a thread; the log tag Debug says why.";
    thread_queue_len: Gauge Info Integer "Work waiting" "Work that waits for a free thread at the moment.";
    busy_sleep: Counter Info Integer "Requests that waited for a fetch"
        "Requests that found the object being fetched for another and waited.";
    busy_wakeup: Counter Info Integer "Requests woken after waiting"
        "Requests that waited for an object and were taken up again.";
    busy_killed: Counter Info Integer "Requests dropped while waiting"
        "Requests that waited for an object and were given up for want of resources.";
    sess_queued: Counter Info Integer "Sessions queued" "Sessions that had to wait for their turn.";
    sess_dropped: Counter Info Integer "Sessions dropped" "Sessions closed because too many waited already.";
    req_dropped: Counter Info Integer "Requests refused"
        "HTTP/2 streams refused because too many waited already.";
    req_reset: Counter Info Integer "Requests given up by the client"
        "Requests whose client went away, or reset the stream, before VCL was through with them.";
    fetch_abandoned: Counter Info Integer "Fetches ended for want of a client"
        "Fetches that ended early because their client was gone and they were not for the cache, or because requests with a client needed their place.";
    n_waiting: Gauge Info Integer "Requests that wait for a backend"
        "Requests that wait for a backend, for another's fetch or for a body that is being fetched, and fetches that go on without a client; bounded by max_waiting.";
    n_object: Gauge Info Integer "Objects in the cache"
        "About how many responses, with head and body, the cache holds.";
    n_vampireobject: Gauge Diag Integer "Objects not yet read back"
        "Objects known from persistent storage whose metadata has not been loaded again.";
    n_objectcore: Gauge Info Integer "Cache entries"
        "About how many entries the cache holds: an object each, and besides them the remembered decisions (hit-for-pass, hit-for-miss) and the objects being fetched.";
    n_objecthead: Gauge Info Integer "Cache keys"
        "About how many different keys the cache holds; variants share one.";
    n_backend: Gauge Info Integer "Backends" "Number of backends over all loaded VCLs.";
    n_expired: Counter Info Integer "Objects expired" "Objects removed because their time was over.";
    n_superseded: Counter Diag Integer "Objects replaced"
        "Objects replaced by a newer response for the same key and variant.";
    n_lru_nuked: Counter Info Integer "Objects evicted"
        "Objects removed before their time to make room for others.";
    n_lru_moved: Counter Diag Integer "Objects moved on the eviction list"
        "How often an object's place in the order of eviction was renewed.";
    n_lru_limited: Counter Info Integer "Evictions at nuke_limit"
        "Allocations given up because evicting as many objects as the parameter nuke_limit allows did not make room enough.";
    losthdr: Counter Info Integer "Header fields lost"
        "Header fields that did not fit the limits and were dropped.";
    s_sess: Counter Info Integer "Sessions" "Client sessions since the worker began.";
    n_pipe: Gauge Info Integer "Pipes open" "Sessions that are piping at the moment.";
    pipe_limited: Counter Info Integer "Pipes refused"
        "Sessions not piped because as many as the parameter pipe_sess_max allows were already.";
    s_pipe: Counter Info Integer "Pipes" "Sessions that were piped.";
    s_pass: Counter Info Integer "Passes" "Requests passed on to a backend without a look into the cache.";
    s_fetch: Counter Info Integer "Fetches" "Fetches begun, those in the background included.";
    s_bgfetch: Counter Info Integer "Background fetches"
        "Fetches begun to refresh an object while a stale one was delivered.";
    s_synth: Counter Info Integer "Synthetic responses" "Responses made by the proxy itself.";
    s_req_hdrbytes: Counter Info Bytes "Bytes of request heads"
        "Bytes of request lines and headers received from clients.";
    s_req_bodybytes: Counter Info Bytes "Bytes of request bodies"
        "Bytes of request bodies received from clients.";
    s_resp_hdrbytes: Counter Info Bytes "Bytes of response heads"
        "Bytes of status lines and headers sent to clients.";
    s_resp_bodybytes: Counter Info Bytes "Bytes of response bodies"
        "Bytes of response bodies sent to clients.";
    s_pipe_hdrbytes: Counter Info Bytes "Bytes of piped request heads"
        "Bytes of request heads received in sessions that were then piped.";
    s_pipe_in: Counter Info Bytes "Bytes piped from clients"
        "Bytes forwarded from clients in piped sessions.";
    s_pipe_out: Counter Info Bytes "Bytes piped to clients" "Bytes forwarded to clients in piped sessions.";
    transit_stored: Counter Diag Bytes "Bytes of pass bodies stored"
        "Bytes of uncacheable bodies held in storage while they were passed on.";
    transit_buffered: Counter Diag Bytes "Bytes of pass bodies in transit buffers"
        "Bytes of uncacheable bodies that went through a bounded buffer.";
    sess_closed: Counter Info Integer "Sessions closed" "Client sessions that ended in good order.";
    sess_closed_err: Counter Info Integer "Sessions closed on error"
        "Client sessions that ended with an error; the sc_* counters say which.";
    sess_readahead: Counter Info Integer "Sessions with the next request at hand"
        "How often the next request had already arrived when the previous was done.";
    sess_herd: Counter Diag Integer "Sessions gone idle"
        "How often a session waited longer than timeout_linger and was set aside.";
    sc_rem_close: Counter Diag Integer "Closed well: REM_CLOSE"
        "Sessions that ended because the client closed.";
    sc_req_close: Counter Diag Integer "Closed well: REQ_CLOSE"
        "Sessions that ended because the client asked for it.";
    sc_req_http10: Counter Diag Integer "Closed on error: REQ_HTTP10"
        "Sessions that ended because the client speaks less than HTTP/1.1.";
    sc_rx_bad: Counter Diag Integer "Closed on error: RX_BAD"
        "Sessions that ended because a message was malformed.";
    sc_rx_body: Counter Diag Integer "Closed on error: RX_BODY"
        "Sessions that ended because the request body could not be read.";
    sc_rx_junk: Counter Diag Integer "Closed on error: RX_JUNK"
        "Sessions that ended because what came was no request.";
    sc_rx_overflow: Counter Diag Integer "Closed on error: RX_OVERFLOW"
        "Sessions that ended because a request was larger than the limits.";
    sc_rx_timeout: Counter Diag Integer "Closed on error: RX_TIMEOUT"
        "Sessions that ended because the client sent too slowly.";
    sc_rx_close_idle: Counter Diag Integer "Closed on error: RX_CLOSE_IDLE"
        "Sessions that ended because no request came within timeout_idle.";
    sc_tx_pipe: Counter Diag Integer "Closed well: TX_PIPE" "Sessions that ended with a pipe.";
    sc_tx_error: Counter Diag Integer "Closed on error: TX_ERROR"
        "Sessions that ended because the response could not be sent.";
    sc_tx_eof: Counter Diag Integer "Closed well: TX_EOF"
        "Sessions that ended because only that could mark the end of the body.";
    sc_resp_close: Counter Diag Integer "Closed well: RESP_CLOSE"
        "Sessions that ended because the backend or VCL asked for it.";
    sc_overload: Counter Diag Integer "Closed on error: OVERLOAD"
        "Sessions that ended because some resource ran out.";
    sc_pipe_overflow: Counter Diag Integer "Closed on error: PIPE_OVERFLOW"
        "Sessions that ended because too many were piped already.";
    sc_range_short: Counter Diag Integer "Closed on error: RANGE_SHORT"
        "Sessions that ended because there were fewer bytes than the range promised.";
    sc_req_http20: Counter Diag Integer "Closed on error: REQ_HTTP20"
        "Sessions that ended because HTTP/2 is not enabled.";
    sc_vcl_failure: Counter Diag Integer "Closed on error: VCL_FAILURE"
        "Sessions that ended because VCL failed.";
    sc_rapid_reset: Counter Diag Integer "Closed on error: RAPID_RESET"
        "HTTP/2 sessions that ended because the client reset streams faster than the limits allow.";
    h2_reset_limited: Counter Diag Integer "HTTP/2 sessions closed: resets of an address"
        "HTTP/2 sessions that ended because their address had used up its budget of rapid resets. Part of sc_rapid_reset.";
    sc_bankrupt: Counter Diag Integer "Closed on error: BANKRUPT"
        "HTTP/2 sessions that ended because no stream got window credit before h2_window_timeout.";
    client_resp_500: Counter Diag Integer "Responses given up for want of workspace"
        "Responses that failed because memory for the request ran out during delivery.";
    ws_backend_overflow: Counter Diag Integer "Overflows of workspace_backend"
        "How often a fetch needed more than workspace_backend.";
    ws_client_overflow: Counter Diag Integer "Overflows of workspace_client"
        "How often a request needed more than workspace_client.";
    ws_thread_overflow: Counter Diag Integer "Overflows of workspace_thread"
        "How often delivery or fetch needed more than workspace_thread.";
    ws_session_overflow: Counter Diag Integer "Overflows of workspace_session"
        "How often a session needed more than workspace_session.";
    shm_records: Counter Diag Integer "Log records" "Records written to the log.";
    shm_writes: Counter Diag Integer "Log writes"
        "Writes to the log; one takes all records that a transaction has gathered.";
    shm_flushes: Counter Diag Integer "Log writes before the end"
        "Writes in the middle of a transaction because its records outgrew vsl_buffer.";
    shm_cont: Counter Diag Integer "Log writes that waited" "Writes that found the log's lock taken.";
    shm_cycles: Counter Diag Integer "Turns of the log"
        "How often writing reached the end of the log and went on at its beginning.";
    shm_bytes: Counter Diag Bytes "Log bytes" "Bytes written to the log.";
    backend_req: Counter Info Integer "Requests to backends" "Requests sent to backends.";
    n_vcl: Gauge Info Integer "VCLs" "Number of loaded VCLs.";
    n_vcl_avail: Gauge Diag Integer "VCLs available" "Number of loaded VCLs that may be used.";
    n_vcl_discard: Gauge Diag Integer "VCLs discarded"
        "Number of VCLs that were discarded and are still in use.";
    vcl_fail: Counter Info Integer "VCL failures" "How often VCL was ended by a failure.";
    bans: Gauge Info Integer "Bans" "Number of bans on the list, those that are completed included.";
    bans_completed: Gauge Diag Integer "Bans completed"
        "Number of bans that need no more testing, because all older objects were tested or a newer ban says the same.";
    bans_obj: Gauge Diag Integer "Bans on objects"
        "Number of bans whose tests use only obj.*, which the lurker can carry out.";
    bans_req: Gauge Diag Integer "Bans on requests"
        "Number of bans whose tests use req.*, which only a lookup can carry out.";
    bans_added: Counter Diag Integer "Bans added" "Bans put on the list.";
    bans_deleted: Counter Diag Integer "Bans removed" "Bans taken off the list.";
    bans_tested: Counter Diag Integer "Ban tests at lookup"
        "How often an object was tested against a ban during lookup.";
    bans_obj_killed: Counter Diag Integer "Objects banned at lookup"
        "Objects that a lookup found to be banned.";
    bans_lurker_tested: Counter Diag Integer "Ban tests by the lurker"
        "How often the lurker tested an object against a ban.";
    bans_tests_tested: Counter Diag Integer "Ban conditions tested at lookup"
        "Conditions evaluated in the tests that bans_tested counts; a ban may have several.";
    bans_lurker_tests_tested: Counter Diag Integer "Ban conditions tested by the lurker"
        "Conditions evaluated in the tests that bans_lurker_tested counts; a ban may have several.";
    bans_lurker_obj_killed: Counter Diag Integer "Objects banned by the lurker"
        "Objects that the lurker found to be banned.";
    bans_lurker_obj_killed_cutoff: Counter Diag Integer "Objects dropped to shorten the list"
        "Objects that the lurker removed untested to keep the list below the parameter ban_cutoff.";
    bans_dups: Counter Diag Integer "Bans made needless"
        "Bans completed at once because a newer one says the same.";
    bans_lurker_contention: Counter Diag Integer "Lurker stepped aside"
        "How often the lurker had to wait for lookups.";
    bans_persisted_bytes: Gauge Diag Bytes "Bytes of stored bans"
        "Bytes that the ban lists in persistent storage take.";
    bans_persisted_fragmentation: Gauge Diag Bytes "Bytes of stored bans no longer needed"
        "Bytes in the stored ban lists that belong to removed or completed bans.";
    n_purges: Counter Info Integer "Purges" "How often a key was purged.";
    n_obj_purged: Counter Info Integer "Objects purged" "Objects removed by purges.";
    exp_mailed: Counter Diag Integer "Objects told to expiry" "Objects that were given to expiry to watch.";
    exp_received: Counter Diag Integer "Objects taken by expiry" "Objects that expiry has begun to watch.";
    hcb_nolock: Counter Debug Integer "Lookups without lock"
        "Lookups that found their key without taking a lock.";
    hcb_lock: Counter Debug Integer "Lookups with lock" "Lookups that took a lock.";
    hcb_insert: Counter Debug Integer "Keys inserted" "Lookups that added a key.";
    esi_errors: Counter Diag Integer "ESI errors" "Faults in ESI markup that made it impossible to process.";
    esi_warnings: Counter Diag Integer "ESI warnings" "Faults in ESI markup that could be passed over.";
    vmods: Gauge Info Integer "VMODs" "Number of loaded VMODs.";
    n_gzip: Counter Info Integer "Bodies compressed" "How often a body was gzipped.";
    n_gunzip: Counter Info Integer "Bodies decompressed" "How often a body was gunzipped.";
    n_test_gunzip: Counter Info Integer "Bodies tested"
        "How often a gzipped body was checked on its way into storage.";
    reactor_holds: Counter Diag Integer "Turns that held a reactor"
        "How often one task had a reactor for longer than the parameter reactor_watchdog, so that the reactor's other clients waited. The log tag Error says which.";
    http1_iovs_flush: Counter Info Integer "Writes for want of vectors"
        "Extra writes on HTTP/1 connections because one call takes only so many pieces.";
    http1_absolute_form: Counter Diag Integer "Requests in absolute form"
        "HTTP/1 requests whose target was a whole URL.";
}
