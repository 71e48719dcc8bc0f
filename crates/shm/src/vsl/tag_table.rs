//! The tags of the log, in the order of their numbers: a row's place is its number, counted from 1.
//!
//! New tags go to the end. Those after `VdpAcct` are unknown to the tools of 7.7, which print `(null)`.

super::tag::tags! {
    Debug Unsafe "For developers" "Its texts may change at any time. Masked by default.";
    Error Plain "Something went wrong" "";
    CLI Plain "A management command or its answer"
        "``Rd`` and the command, or ``Wr``, the status, the length and the answer.";
    SessOpen Plain "A client connected"
        "Client address and port, listener name, local address and port, time (epoch), file descriptor. Addresses of UNIX sockets are ``0.0.0.0`` and port 0.";
    SessClose Plain "The client connection ended"
        "The reason, as in the counters MAIN.sc_*, and how long the session lasted in seconds.";
    BackendOpen Plain "A backend connection was taken into use"
        "File descriptor, backend name, remote address and port, local address and port, ``connect`` or ``reuse``.";
    BackendClose Plain "A backend connection was let go"
        "File descriptor, backend name, ``close`` or ``recycle``, and for a close perhaps the reason.";
    HttpGarbage Unsafe "What came instead of a request" "";
    Proxy Plain "What the PROXY header said"
        "Version, client address and port, server address and port; ``local`` for each if the proxy spoke for itself.";
    ProxyGarbage Plain "What was wrong with the PROXY header" "";
    Length Plain "Size of a fetched body" "";
    FetchError Plain "Why a fetch failed" "";
    ReqMethod Plain "Request from the client: method" "";
    ReqURL Plain "Request from the client: target" "";
    ReqProtocol Plain "Request from the client: protocol" "";
    ReqStatus Unused "Request from the client: status" "";
    ReqReason Unused "Request from the client: reason" "";
    ReqHeader Plain "Request from the client: header field"
        "Name, a colon and a space, value: as set, either received or by VCL.";
    ReqUnset Plain "Request from the client: header field removed"
        "Name, a colon and a space, value: as it was.";
    ReqLost Unused "Request from the client: header field lost" "";
    RespMethod Unused "Response to the client: method" "";
    RespURL Unused "Response to the client: target" "";
    RespProtocol Plain "Response to the client: protocol" "";
    RespStatus Plain "Response to the client: status" "";
    RespReason Plain "Response to the client: reason" "";
    RespHeader Plain "Response to the client: header field"
        "Name, a colon and a space, value: as set, either received or by VCL.";
    RespUnset Plain "Response to the client: header field removed"
        "Name, a colon and a space, value: as it was.";
    RespLost Unused "Response to the client: header field lost" "";
    BereqMethod Plain "Request to the backend: method" "";
    BereqURL Plain "Request to the backend: target" "";
    BereqProtocol Plain "Request to the backend: protocol" "";
    BereqStatus Unused "Request to the backend: status" "";
    BereqReason Unused "Request to the backend: reason" "";
    BereqHeader Plain "Request to the backend: header field"
        "Name, a colon and a space, value: as set, either received or by VCL.";
    BereqUnset Plain "Request to the backend: header field removed"
        "Name, a colon and a space, value: as it was.";
    BereqLost Unused "Request to the backend: header field lost" "";
    BerespMethod Unused "Response of the backend: method" "";
    BerespURL Unused "Response of the backend: target" "";
    BerespProtocol Plain "Response of the backend: protocol" "";
    BerespStatus Plain "Response of the backend: status" "";
    BerespReason Plain "Response of the backend: reason" "";
    BerespHeader Plain "Response of the backend: header field"
        "Name, a colon and a space, value: as set, either received or by VCL.";
    BerespUnset Plain "Response of the backend: header field removed"
        "Name, a colon and a space, value: as it was.";
    BerespLost Unused "Response of the backend: header field lost" "";
    ObjMethod Unused "Object: method" "";
    ObjURL Unused "Object: target" "";
    ObjProtocol Plain "Object: protocol" "";
    ObjStatus Plain "Object: status" "";
    ObjReason Plain "Object: reason" "";
    ObjHeader Plain "Object: header field"
        "Name, a colon and a space, value: as set, either received or by VCL.";
    ObjUnset Plain "Object: header field removed" "Name, a colon and a space, value: as it was.";
    ObjLost Unused "Object: header field lost" "";
    BogoHeader Plain "Start of a header that made no sense" "";
    LostHeader Plain "Name of a header that found no room" "";
    TTL Plain "How long an object may be used"
        "Who says so (``RFC``, ``VCL``, ``HFP``, ``HFM``), ttl, grace, keep, reference time; for ``RFC`` also age, Date, Expires and max-age; ``cacheable`` or ``uncacheable``. Times in seconds.";
    Fetch_Body Plain "A body is about to be fetched"
        "Number and name of the way its end is known, ``stream`` or ``-``.";
    VCL_acl Plain "Result of an ACL"
        "``MATCH``, ACL and entry; ``NO_MATCH`` and ACL; ``NO_FAM`` for an address of a kind that ACLs do not know. With ``fixed:`` where the entry is not as it was written.";
    VCL_call Plain "A VCL subroutine was called" "";
    VCL_trace Plain "VCL passed a point"
        "VCL name, number of the point, and its place: source, line, column. Masked by default.";
    VCL_return Plain "What a VCL subroutine returned" "";
    ReqStart Plain "A request begins" "Client address, port, listener name.";
    Hit Plain "An object was found"
        "Its transaction, remaining TTL, grace, keep; while it is still being fetched also the bytes there are and the Content-Length.";
    HitPass Plain "A decision to pass was found" "Its transaction and remaining TTL.";
    ExpBan Plain "A banned object was removed" "Its transaction.";
    ExpKill Plain "What expiry and eviction do"
        "An event and its values (``x`` transaction, ``t`` remaining TTL, ``h`` hits, ``n`` successor). Masked by default.";
    WorkThread Plain "A thread began or ended" "The thread, ``start`` or ``end``. Masked by default.";
    ESI_xmlerror Plain "Fault in ESI markup" "``ERR`` or ``WARN`` and where and what.";
    Hash Unsafe "What went into the cache key" "Masked by default.";
    Backend_health Plain "Result of a probe"
        "Backend, ``Back``, ``Still`` or ``Went``, ``healthy`` or ``sick``, what the probe met, good probes in the window, threshold, window, response time, average, and the status line or the error.";
    VCL_Log Plain "Message from VCL" "";
    VCL_Error Plain "Failure in VCL" "";
    Gzip Plain "Compression work"
        "``G``, ``U`` or ``u`` (gzip, gunzip, test), ``F`` or ``D`` (fetch, deliver), ``E`` or ``-`` (ESI or not), bytes in, bytes out, and three bit positions in the gzip stream: first block, last block, end.";
    Link Plain "A transaction begun by this one"
        "``sess``, ``req`` or ``bereq``, its number, why, and for ESI the level.";
    Begin Plain "A transaction begins"
        "``sess``, ``req`` or ``bereq``, the parent's number, why, and for ESI the level.";
    End Plain "A transaction ends" "";
    VSL Plain "Message of the reader" "Made by the tools, when records are missing.";
    Storage Plain "Where an object is stored" "Kind and name of the store.";
    Timestamp Plain "A step was reached"
        "Step and colon, time (epoch), seconds since the work began, seconds since the previous stamp.";
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
    Filters Plain "Filters that a body goes through" "";
    SessError Plain "A connection could not be accepted"
        "Listener name, local address and port, file descriptor, error number, error text.";
    VCL_use Plain "The VCL that is used" "Its name, and if a label led there, ``via`` and the label.";
    Notice Plain "Something worth knowing about a request" "Manual page, a colon and a space, the message.";
    VdpAcct Plain "Work of a delivery filter" "Filter, calls, bytes out. Masked by default.";
    BackendSSL Plain "TLS towards the backend" "";
    TLS Plain "TLS towards the client" "";
    ReqTarget Plain "Target of a request as received" "";
}
