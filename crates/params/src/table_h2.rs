//! Parameters of HTTP/2 and TLS.

macro_rules! h2_params {
    ([$next:ident $($rest:ident)*] $($rows:tt)*) => { $next! { [$($rest)*] $($rows)*

h2_header_table_size: Bytes = "4k" { units = "bytes", min = "0b" }
    "Size of the HPACK table for decoding: SETTINGS_HEADER_TABLE_SIZE.";
h2_initial_window_size: Bytes = "65535b" { units = "bytes", min = "65535b", max = "2147483647b" }
    "Flow-control window of a new stream: SETTINGS_INITIAL_WINDOW_SIZE.";
h2_max_concurrent_streams: Uint = "100" { units = "streams", min = "0" }
    "Maximum number of open requests of one connection: SETTINGS_MAX_CONCURRENT_STREAMS.";
h2_max_frame_size: Bytes = "16k" { units = "bytes", min = "16k", max = "16777215b" }
    "Maximum size of a received frame: SETTINGS_MAX_FRAME_SIZE.";
h2_max_header_list_size: Bytes = "0b" { units = "bytes", min = "0b", max = "2147483647b" }
    "Maximum size of a decoded header list. A larger one ends the connection; one larger than http_req_size only \
     resets its stream. 0 means one and a half times http_req_size.";
h2_rapid_reset: Duration = "1.000" { units = "seconds", min = "0", flags = EXPERIMENTAL | DELAYED_EFFECT }
    "A stream that is reset within this time after its headers counts towards h2_rapid_reset_limit. \
     New sessions start with this value.";
h2_rapid_reset_address_limit: Uint = "10000" { units = "resets", min = "0" }
    "Maximum number of rapid resets within h2_rapid_reset_period, over all connections of one client address. \
     Beyond it, each connection with a further one is closed. Only resets that h2_rapid_reset_limit counts are \
     counted. 0 is no limit.";
h2_rapid_reset_limit: Uint = "100" { min = "0", flags = EXPERIMENTAL | DELAYED_EFFECT }
    "Maximum number of rapid resets within h2_rapid_reset_period. More end the connection. 0 is no limit. New \
     sessions start with this value.";
h2_rapid_reset_period: Duration = "60.000" { units = "seconds", min = "1", flags = EXPERIMENTAL | DELAYED_EFFECT | WIZARD }
    "The period over which rapid resets are counted. New sessions start with this value.";
h2_rx_window_increment: Bytes = "1M" { units = "bytes", min = "1M", max = "1G", flags = WIZARD }
    "Credit of one WINDOW_UPDATE for a connection. It affects request bodies only.";
h2_rx_window_low_water: Bytes = "10M" { units = "bytes", min = "65535", max = "1G", flags = WIZARD }
    "Size of the receive window of a connection below which credit is sent. It affects request bodies only. The window \
     of a stream is filled whenever bytes of its body were read.";
h2_rxbuf_storage: Storage = "Transient" { flags = MUST_RESTART }
    "Storage in which request bodies are buffered while they arrive.";
h2_window_timeout: Timeout = "5" { units = "seconds", min = "0", flags = WIZARD }
    "Maximum time that a stream waits for window credit of the client.";
ssl_buffer: Bytes = "20k" { units = "bytes", min = "0.25k" }
    "Size of the buffer of one TLS connection.";
sslbuf_pool: Pool = "10,100,10" { }
    "Pool of TLS buffers that are kept for reuse.\n\nThe three numbers are:\n\
     \tmin_pool\tminimum size of free pool.\n\tmax_pool\tmaximum size of free pool.\n\
     \tmax_age\tmax age of free element.";
tls_cleanup_batch: Uint = "100" { units = "SSL_CTX", min = "1" }
    "Number of removed certificates that are freed at a time.";
tls_early_data: Bool = "off" { units = "bool", flags = MUST_RESTART }
    "Accept requests in the first flight of a resumed session (0-RTT), over TLS 1.3 and HTTP/3. Requests with the method \
     GET, HEAD or OPTIONS and without a body are processed at once, and have the field Early-Data: 1 until the handshake \
     is complete. Others wait for its end. Sessions are then kept by the worker, which forgets each at its first use, so \
     that early data cannot be sent a second time, instead of in tickets: a restart of the worker and an upgrade end \
     them.";
tls_err_dup_servername: Bool = "off" { units = "bool" }
    "Whether tls.cert.load refuses a certificate that has a server name of another one. Otherwise the certificate of the \
     latest transaction is used for the name, and among these the one that was loaded first.";
tls_handshake_timeout: Duration = "8.000" { units = "seconds", min = "0" }
    "Maximum time of a TLS handshake.";
tls_ja3: Bool = "off" { units = "bool" }
    "Compute the JA3 fingerprint of TLS clients.";
    } };
}
