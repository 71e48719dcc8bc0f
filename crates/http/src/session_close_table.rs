//! The reasons for closing a connection: their names in `SessClose` records, their counters `MAIN.sc_*` and their
//! descriptions.

macro_rules! session_close {
    ($($variant:ident $name:literal $counter:literal $is_error:literal $text:literal;)*) => {
        /// The reasons, in the order of the counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum SessClose { $($variant),* }

        impl SessClose {
            pub const ALL: &'static [SessClose] = &[$(SessClose::$variant),*];

            /// Returns the name in `SessClose` records.
            pub const fn name(self) -> &'static str { match self { $(SessClose::$variant => $name),* } }
            /// Returns the name of the counter, as in `MAIN.sc_<counter>`.
            pub const fn counter(self) -> &'static str { match self { $(SessClose::$variant => $counter),* } }
            /// Returns whether `MAIN.sess_closed_err` counts it.
            pub const fn is_error(self) -> bool { match self { $(SessClose::$variant => $is_error),* } }
            pub const fn text(self) -> &'static str { match self { $(SessClose::$variant => $text),* } }
        }
    };
}

session_close! {
    RemClose "REM_CLOSE" "rem_close" false "Client Closed";
    ReqClose "REQ_CLOSE" "req_close" false "Client requested close";
    ReqHttp10 "REQ_HTTP10" "req_http10" true "Proto < HTTP/1.1";
    RxBad "RX_BAD" "rx_bad" true "Received bad req/resp";
    RxBody "RX_BODY" "rx_body" true "Failure receiving body";
    RxJunk "RX_JUNK" "rx_junk" true "Received junk data";
    RxOverflow "RX_OVERFLOW" "rx_overflow" true "Received buffer overflow";
    RxTimeout "RX_TIMEOUT" "rx_timeout" true "Receive timeout";
    RxCloseIdle "RX_CLOSE_IDLE" "rx_close_idle" false "timeout_idle reached";
    TxPipe "TX_PIPE" "tx_pipe" false "Piped transaction";
    TxError "TX_ERROR" "tx_error" true "Error transaction";
    TxEof "TX_EOF" "tx_eof" false "EOF transmission";
    RespClose "RESP_CLOSE" "resp_close" false "Backend/VCL requested close";
    Overload "OVERLOAD" "overload" true "Out of some resource";
    PipeOverflow "PIPE_OVERFLOW" "pipe_overflow" true "Session pipe overflow";
    RangeShort "RANGE_SHORT" "range_short" true "Insufficient data for range";
    ReqHttp20 "REQ_HTTP20" "req_http20" true "HTTP2 not accepted";
    VclFailure "VCL_FAILURE" "vcl_failure" true "VCL failure";
    RapidReset "RAPID_RESET" "rapid_reset" true "HTTP2 rapid reset";
    Bankrupt "BANKRUPT" "bankrupt" true "HTTP2 credit bankruptcy";
}
