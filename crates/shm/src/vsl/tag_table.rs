//! The tags of the log, in the order of their numbers: a row's position is its number, counted from 1.
//!
//! New tags are appended. Those after `VdpAcct` are unknown to the tools of 7.7, which print `(null)`.

super::tag::tags! {
    Debug Unsafe "For developers" "The texts may change at any time. Masked by default.";
    Error Plain "An error" "";
    CLI Plain "A management command or its reply"
        "``Rd`` and the command, or ``Wr``, the status, the length and the reply.";
    SessOpen Plain "A client connected"
        "Client address and port, listener name, local address and port, time (epoch), file descriptor. Addresses of UNIX sockets are ``0.0.0.0`` and port 0.";
    SessClose Plain "The client connection ended"
        "The reason, as in the counters MAIN.sc_*, and the duration of the session in seconds.";
    BackendOpen Plain "A backend connection is used"
        "File descriptor, backend name, remote address and port, local address and port, ``connect`` or ``reuse``.";
    BackendClose Plain "A backend connection is released"
        "File descriptor, backend name, ``close`` or ``recycle``, and for a close, if known, the reason.";
    HttpGarbage Unsafe "Bytes received instead of a request" "";
    Proxy Plain "Contents of the PROXY header"
        "Version, client address and port, server address and port; ``local`` for each if the proxy connected on its own behalf.";
    ProxyGarbage Plain "Error in the PROXY header" "";
    Length Plain "Size of a fetched body" "";
    FetchError Plain "Reason why a fetch failed" "";
    ReqMethod Plain "Request from the client: method" "";
    ReqURL Plain "Request from the client: target" "";
    ReqProtocol Plain "Request from the client: protocol" "";
    ReqStatus Unused "Request from the client: status" "";
    ReqReason Unused "Request from the client: reason" "";
    ReqHeader Plain "Request from the client: header field"
        "Name, a colon and a space, value: as received or as set by VCL.";
    ReqUnset Plain "Request from the client: header field removed"
        "Name, a colon and a space, value: before the removal.";
    ReqLost Unused "Request from the client: header field lost" "";
    RespMethod Unused "Response to the client: method" "";
    RespURL Unused "Response to the client: target" "";
    RespProtocol Plain "Response to the client: protocol" "";
    RespStatus Plain "Response to the client: status" "";
    RespReason Plain "Response to the client: reason" "";
    RespHeader Plain "Response to the client: header field"
        "Name, a colon and a space, value: as received or as set by VCL.";
    RespUnset Plain "Response to the client: header field removed"
        "Name, a colon and a space, value: before the removal.";
    RespLost Unused "Response to the client: header field lost" "";
    BereqMethod Plain "Request to the backend: method" "";
    BereqURL Plain "Request to the backend: target" "";
    BereqProtocol Plain "Request to the backend: protocol" "";
    BereqStatus Unused "Request to the backend: status" "";
    BereqReason Unused "Request to the backend: reason" "";
    BereqHeader Plain "Request to the backend: header field"
        "Name, a colon and a space, value: as received or as set by VCL.";
    BereqUnset Plain "Request to the backend: header field removed"
        "Name, a colon and a space, value: before the removal.";
    BereqLost Unused "Request to the backend: header field lost" "";
    BerespMethod Unused "Response of the backend: method" "";
    BerespURL Unused "Response of the backend: target" "";
    BerespProtocol Plain "Response of the backend: protocol" "";
    BerespStatus Plain "Response of the backend: status" "";
    BerespReason Plain "Response of the backend: reason" "";
    BerespHeader Plain "Response of the backend: header field"
        "Name, a colon and a space, value: as received or as set by VCL.";
    BerespUnset Plain "Response of the backend: header field removed"
        "Name, a colon and a space, value: before the removal.";
    BerespLost Unused "Response of the backend: header field lost" "";
    ObjMethod Unused "Object: method" "";
    ObjURL Unused "Object: target" "";
    ObjProtocol Plain "Object: protocol" "";
    ObjStatus Plain "Object: status" "";
    ObjReason Plain "Object: reason" "";
    ObjHeader Plain "Object: header field"
        "Name, a colon and a space, value: as received or as set by VCL.";
    ObjUnset Plain "Object: header field removed" "Name, a colon and a space, value: before the removal.";
    ObjLost Unused "Object: header field lost" "";
    BogoHeader Plain "Start of a malformed header" "";
    LostHeader Plain "Name of a header that exceeded the limits" "";
    TTL Plain "Lifetime of an object"
        "Source (``RFC``, ``VCL``, ``HFP``, ``HFM``), ttl, grace, keep, reference time; for ``RFC`` also age, Date, Expires and max-age; ``cacheable`` or ``uncacheable``. Times in seconds.";
    Fetch_Body Plain "A body is about to be fetched"
        "Number and name of the body's framing, ``stream`` or ``-``.";
    VCL_acl Plain "Result of an ACL"
        "``MATCH``, ACL and entry; ``NO_MATCH`` and ACL; ``NO_FAM`` for an address family that ACLs do not support. ``fixed:`` marks an entry that differs from its source text.";
    VCL_call Plain "A VCL subroutine was called" "";
    VCL_trace Plain "VCL reached a trace point"
        "VCL name, number of the point, and its location: source, line, column. Masked by default.";
    VCL_return Plain "Action that a VCL subroutine returned" "";
    ReqStart Plain "Start of a request" "Client address, port, listener name.";
    Hit Plain "An object was found"
        "Its transaction, remaining TTL, grace, keep; while it is being fetched, also the bytes received so far and the Content-Length.";
    HitPass Plain "A decision to pass was found" "Its transaction and remaining TTL.";
    ExpBan Plain "A banned object was removed" "Its transaction.";
    ExpKill Plain "Actions of expiry and eviction"
        "An event and its values (``x`` transaction, ``t`` remaining TTL, ``h`` hits, ``n`` successor). Masked by default.";
    WorkThread Plain "A thread began or ended" "The thread, ``start`` or ``end``. Masked by default.";
    ESI_xmlerror Plain "Error in ESI markup" "``ERR`` or ``WARN``, the location and the error.";
    Hash Unsafe "Part of the cache key" "Masked by default.";
    Backend_health Plain "Result of a probe"
        "Backend, ``Back``, ``Still`` or ``Went``, ``healthy`` or ``sick``, the steps that the probe completed, good probes in the window, threshold, window, response time, average, and the status line or the error.";
    VCL_Log Plain "Message from VCL" "";
    VCL_Error Plain "Failure in VCL" "";
    Gzip Plain "Compression work"
        "``G``, ``U`` or ``u`` (gzip, gunzip, test), ``F`` or ``D`` (fetch, deliver), ``E`` or ``-`` (ESI or not), bytes in, bytes out, and three bit positions in the gzip stream: first block, last block, end.";
    Link Plain "A transaction started by this one"
        "``sess``, ``req`` or ``bereq``, its number, the reason, and for ESI the level.";
    Begin Plain "Start of a transaction"
        "``sess``, ``req`` or ``bereq``, the parent's number, the reason, and for ESI the level.";
    End Plain "End of a transaction" "";
    VSL Plain "Message of the reader" "Generated by the tools when records are missing.";
    Storage Plain "Storage of an object" "Kind and name of the store.";
    Timestamp Plain "A step was reached"
        "Step and colon, time (epoch), seconds since the start, seconds since the previous timestamp.";
    ReqAcct Plain "Bytes of a request" "Received: head, body, sum; sent: head, body, sum.";
    PipeAcct Plain "Bytes of a pipe"
        "Client's request head, head sent to the backend, bytes from the client, bytes to the client.";
    BereqAcct Plain "Bytes of a fetch" "Sent: head, body, sum; received: head, body, sum.";
    VfpAcct Plain "Work of a fetch filter" "Filter, calls, bytes out. Masked by default.";
    Witness Plain "Order of locks" "";
    H2RxHdr Binary "Frame head received (HTTP/2)" "Masked by default.";
    H2RxBody Binary "Frame body received (HTTP/2)" "Masked by default.";
    H2TxHdr Binary "Frame head sent (HTTP/2)" "Masked by default.";
    H2TxBody Binary "Frame body sent (HTTP/2)" "Masked by default.";
    HitMiss Plain "A decision to miss was found" "Its transaction and remaining TTL.";
    Filters Plain "Filters of a body" "";
    SessError Plain "A connection could not be accepted"
        "Listener name, local address and port, file descriptor, error number, error text.";
    VCL_use Plain "The VCL that is used" "Its name, and if a label selected it, ``via`` and the label.";
    Notice Plain "Information about a request" "Manual page, a colon and a space, the message.";
    VdpAcct Plain "Work of a delivery filter" "Filter, calls, bytes out. Masked by default.";
    BackendSSL Plain "TLS to the backend" "";
    TLS Plain "TLS to the client" "";
    ReqTarget Plain "Target of a request as received" "";
}
