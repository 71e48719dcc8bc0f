//! Parameters of the processes: management, threads, memory, VCL programs, logging.

macro_rules! process_params {
    ([$next:ident $($rest:ident)*] $($rows:tt)*) => { $next! { [$($rest)*] $($rows)*

auto_restart: Bool = "on" { units = "bool" }
    "Restart the worker when it dies.";
keep_memory: Bool = "on" { units = "bool", flags = MUST_RESTART }
    "Keep the objects in the storages (-s), except Transient, when the worker dies, and in those of -s file when the \
     daemon ends. The next worker checks them and continues with them. If two workers die within a minute after they have taken over objects, the next one starts \
     with empty storages. Objects that are being fetched, and hit-for-miss and hit-for-pass objects, are lost.";
cli_limit: Bytes = "64k" { units = "bytes", min = "128b", max = "99999999b" }
    "Maximum length of a reply of the CLI. A longer one is truncated and has status 201.";
cli_timeout: Timeout = "60.000" { units = "seconds", min = "0" }
    "Maximum time for the worker to reply to the manager.";
drain_timeout: Timeout = "20.000" { units = "seconds", min = "0" }
    "Time in which requests in progress may end after the daemon got SIGTERM. New connections are refused meanwhile, \
     and idle ones are closed. With 0, or at a second SIGTERM, the daemon stops at once.";
retire_timeout: Timeout = "3600.000" { units = "seconds", min = "0" }
    "Time in which the replaced worker may finish its last requests after an upgrade.";
startup_timeout: Timeout = "0.000" { units = "seconds", min = "0" }
    "Maximum time for the worker to start, if it exceeds cli_timeout.";
ping_interval: Uint = "3" { units = "seconds", min = "0", flags = MUST_RESTART }
    "Interval at which the manager checks that the worker responds. 0 disables the check, so that a debugger can be \
     attached.";
panic_buffer: Bytes = "64k" { units = "bytes", min = "4k", max = "10m", flags = MUST_RESTART }
    "Maximum length of a panic message.";
sigsegv_handler: Bool = "on" { units = "bool", flags = MUST_RESTART }
    "On a crash signal, write a report with a backtrace.";
syslog_cli_traffic: Bool = "on" { units = "bool" }
    "Write all CLI traffic to syslog.";
jail_syscalls: Bool = "on" { units = "bool", flags = MUST_RESTART }
    "Restrict the worker to the system calls that it needs (seccomp). Any other one ends it, and panic.show names \
     the call.";
jail_files: Bool = "on" { units = "bool", flags = MUST_RESTART }
    "Restrict the worker to files below jail_read for reading and to the directory of its shared memory for \
     writing. It cannot signal other processes or listen on TCP ports of its own (Landlock).";
jail_read: Text = "/" { flags = MUST_RESTART }
    "Files and directories that the worker may read, separated by colons. Files that VCL names (std.fileread, \
     password files, geographic databases) must be below one of them; /etc, libraries and time zones are \
     always readable. The permissions of the worker's user apply in any case.";
jail_environment: Text = "" { flags = MUST_RESTART }
    "Names of environment variables that the worker gets, separated by commas or spaces; a name that ends with * \
     matches all with that prefix. Those for language, time zone and name resolution, and those that a VCL with \
     std.getenv() mentions, need not be given.";
jail_dumpable: Bool = "off" { units = "bool", flags = MUST_RESTART }
    "Let the processes dump core when they die (the worker unless the feature no_coredump is set), and let processes \
     of their user inspect them. root may attach a debugger in any case. The manager uses the value that it is started \
     with.";
cc_command: Text = "exec cc %w -shared -o %o %s" { flags = MUST_RELOAD | BUILD_OPTIONS,
        default_reason = "exec $CC $CFLAGS %w -shared -o %o %s" }
    "Accepted for compatibility: VCL is compiled without a C compiler.";
cc_warnings: Text = "-Wall -Werror" { flags = MUST_RELOAD | BUILD_OPTIONS, default_reason = "-Wall -Werror" }
    "Accepted for compatibility: VCL is compiled without a C compiler.";
max_vcl: Uint = "100" { min = "0" }
    "Maximum number of VCL programs, without labels. max_vcl_handling defines the reaction when it is exceeded.";
max_vcl_handling: Uint = "1" { min = "0", max = "2" }
    "Reaction when max_vcl is exceeded.\n\n*  0 - Nothing.\n\n*  1 - A warning.\n\n*  2 - No more programs can be loaded.";
vcl_cooldown: Duration = "600.000" { units = "seconds", min = "1" }
    "Time for which a VCL program that is no longer active stays warm (to within half a minute).";
vcl_path: Text = "/etc/varnish:/usr/share/varnish/vcl" { flags = BUILD_OPTIONS,
        default_reason = "${sysconfdir}/varnish:${datadir}/varnish/vcl" }
    "Directories in which VCL files with relative names are searched, also for include, separated by \
     colons. Does not apply to include with +glob.";
vmod_path: Text = "/usr/lib/varnish/vmods" { flags = BUILD_OPTIONS, default_reason = "${libdir}/varnish/vmods" }
    "Accepted for compatibility: modules are part of the program.";
vsl_buffer: Bytes = "16k" { units = "bytes", min = "267", min_reason = "vsl_reclen + 12 bytes" }
    "Maximum bytes of log records that one transaction buffers before they are written to shared memory.";
vsl_reclen: Bytes = "255b" { units = "bytes", min = "16b", max = "65535b", max_reason = "vsl_buffer - 12 bytes" }
    "Maximum length of a log record.";
vsl_space: Bytes = "80M" { units = "bytes", min = "1M", max = "4G", flags = MUST_RESTART }
    "Size of the log in shared memory. If it is too small, slow readers miss records.";
vsl_varnish9: Bool = "off" { units = "bool", flags = MUST_RESTART }
    "The log is that of Varnish 9, for its tools: the numbers of tags, and the texts of ``ESI_xmlerror`` \
     and ``ReqStart``. The tools of Varnish 7.3 to 8.0 need ``off``: the log does not contain which \
     numbers it has, so that tools of another version print wrong names.";
vsm_free_cooldown: Duration = "60.000" { units = "seconds", min = "10.000", max = "600.000" }
    "Time for which unused shared memory is kept (to within two seconds).";
workspace_backend: Bytes = "96k" { units = "bytes", min = "1k", flags = DELAYED_EFFECT }
    "Workspace of one fetch, for its request and response heads and for values of VCL.";
workspace_client: Bytes = "96k" { units = "bytes", min = "9k", flags = DELAYED_EFFECT }
    "Workspace of one client request, for its heads and for values of VCL.";
workspace_session: Bytes = "0.75k" { units = "bytes", min = "384b", flags = DELAYED_EFFECT }
    "Workspace of one client connection, mostly for its addresses.";
workspace_thread: Bytes = "2k" { units = "bytes", min = "0.25k", max = "8k", flags = DELAYED_EFFECT }
    "Scratch workspace of one task.";
pool_req: Pool = "10,100,10" { }
    "Pool of request workspaces that are kept for reuse.\n\nThe three numbers are:\n\
     \tmin_pool\tminimum size of free pool.\n\tmax_pool\tmaximum size of free pool.\n\
     \tmax_age\tmax age of free element.";
pool_sess: Pool = "10,100,10" { }
    "Pool of session workspaces that are kept for reuse.\n\nThe three numbers are:\n\
     \tmin_pool\tminimum size of free pool.\n\tmax_pool\tmaximum size of free pool.\n\
     \tmax_age\tmax age of free element.";
pool_vbo: Pool = "10,100,10" { }
    "Pool of fetch workspaces that are kept for reuse.\n\nThe three numbers are:\n\
     \tmin_pool\tminimum size of free pool.\n\tmax_pool\tmaximum size of free pool.\n\
     \tmax_age\tmax age of free element.";
descriptor_reserve: Uint = "0" { units = "descriptors", min = "0", default_reason = "0 (auto: a sixteenth of RLIMIT_NOFILE, at least 16, at most 256)" }
    "Number of the worker's file descriptors that clients may not use: they are reserved for accepting, the \
     manager, the log and new programs, and half of them also for connections to backends. When only half as \
     many again are left, idle client connections are closed, those without any request first; when the \
     reserve is reached, accepting pauses. 0 is a sixteenth of all, at least 16 and at most 256.";
max_waiting: Uint = "0" { units = "requests", min = "0", default_reason = "0 (auto: a third of RLIMIT_NOFILE)" }
    "Maximum number of requests that wait for a backend, for the fetch of another request or for a body that \
     is being fetched; background fetches count too. A further request ends a fetch without a waiting client, \
     if there is one. Otherwise half as many again are queued (sess_queued), for a second at most, and the \
     others are refused with 503 (counted in sess_dropped, or over HTTP/2 in req_dropped). A single backend \
     gets at most three quarters of it. Deliveries from the cache are not limited. 0 is a third of the \
     worker's file descriptors. See also thread_pool_max.";
reactors: Uint = "0" { units = "threads", min = "0", max = "64", default_reason = "0 (auto: one for each processor, at most 64)", flags = MUST_RESTART }
    "Number of threads of the worker that serve clients and fetch from backends. 0 is one for each processor \
     that it may use, at most 64. See also thread_pools, which only affects the limits that thread_pool_max \
     describes.";
thread_pools: Uint = "2" { units = "pools", min = "1", max = "32", flags = EXPERIMENTAL | DELAYED_EFFECT }
    "Number of thread pools. More can be added while running; fewer need a restart unless the \
     experimental bit drop_pools is set.";
thread_pool_max: Uint = "5000" { units = "threads", flags = DELAYED_EFFECT, min_reason = "thread_pool_min" }
    "Maximum number of threads in each pool. Lacquer has one thread for each core. But if this or \
     thread_queue_limit is not at its default, and thread_pools times this is less than max_waiting, the \
     product is the number of requests that may wait at once for a backend or a body. Further ones are queued \
     (sess_queued), and when the queue is full their session is closed (sess_dropped) or their stream refused \
     (req_dropped).";
thread_pool_min: Uint = "100" { units = "threads", min = "5", flags = DELAYED_EFFECT, max_reason = "thread_pool_max" }
    "Minimum number of threads in each pool. Less than 10 is not recommended.";
thread_pool_reserve: Uint = "0" { units = "threads", flags = DELAYED_EFFECT,
        max_reason = "95% of thread_pool_min", default_reason = "0 (auto-tune: 5% of thread_pool_min)" }
    "Threads of each pool that are reserved for tasks that others depend on; effectively at least 5.";
thread_pool_stack: Bytes = "80k" { units = "bytes", min = "16k", flags = DELAYED_EFFECT,
        min_reason = "sysconf(_SC_THREAD_STACK_MIN)", default_reason = "80k" }
    "Stack size of a worker thread. Deeply nested VCL, ESI and some modules may need more; a stack that \
     is too small causes a segmentation fault near the stack pointer.";
thread_pool_timeout: Duration = "300" { units = "seconds", min = "10", flags = EXPERIMENTAL | DELAYED_EFFECT }
    "Idle time after which a thread beyond thread_pool_min ends.";
thread_pool_watchdog: Duration = "60" { units = "seconds", min = "0.1", flags = EXPERIMENTAL }
    "Time after which the worker process panics if tasks are queued and none is started.";
thread_pool_destroy_delay: Duration = "1" { units = "seconds", min = "0.01", flags = EXPERIMENTAL | DELAYED_EFFECT }
    "Pause after ending a thread.";
thread_pool_add_delay: Duration = "0" { units = "seconds", min = "0", flags = EXPERIMENTAL }
    "Pause after starting a thread.";
thread_pool_fail_delay: Duration = "0.2" { units = "seconds", min = ".01", flags = EXPERIMENTAL }
    "Pause after a thread could not be started.";
reactor_watchdog: Duration = "0.050" { units = "seconds", min = "0" }
    "A task that occupies a reactor for longer than this is logged with the tag Error and counted in \
     MAIN.reactor_holds, because the other clients of that reactor wait meanwhile. Time during which the \
     reactor had no processor does not count. 0 disables the watchdog.";
thread_stats_rate: Uint = "10" { units = "requests", min = "0", flags = EXPERIMENTAL }
    "Number of tasks after which a thread adds its counts to the shared counters even if it has to wait.";
thread_queue_limit: Uint = "20" { units = "requests", min = "0", flags = EXPERIMENTAL }
    "Maximum number of requests that wait for a thread of one pool; more are dropped. In Lacquer they wait for \
     a slot to use a backend, see thread_pool_max; deliveries from the cache are not queued.";
debug: Debug = "none" { }
    "Debugging aids.\n\tnone\tDisable all debugging\n\n\
     Use +/- prefix to set/reset individual bits:";
experimental: Experimental = "none" { }
    "Experimental features.\n\tnone\tDisable all experimental features\n\n\
     Use +/- prefix to set/reset individual bits:";
feature: Feature = "none,+https_scheme,+validate_headers,+vcl_req_reset" { }
    "Optional features.\n\tdefault\tSet default value (deprecated: use param.reset)\n\
     \tnone\tDisable all features.\n\nUse +/- prefix to enable/disable individual feature:";
vcc_feature: VccFeature = "none,+err_unref,+unsafe_path" { }
    "Behavior of the VCL compiler.\n\tdefault\tSet default value (deprecated: use param.reset)\n\
     \tnone\tDisable all behaviors.\n\nUse +/- prefix to enable/disable individual behavior:";
vsl_mask: Mask = "all,-Debug,-ExpKill,-H2RxBody,-H2RxHdr,-H2TxBody,-H2TxHdr,-Hash,-ObjHeader,-ObjProtocol,-ObjReason,-ObjStatus,-ReqTarget,-VdpAcct,-VfpAcct,-WorkThread" { }
    "Tags that are not logged.\n\tall\tEnable all tags\n\
     \tdefault\tSet default value (deprecated: use param.reset)\n\n\
     Use +/- prefix in front of VSL tag name to unmask/mask individual VSL messages. See vsl(7) for \
     possible values.";
    } };
}
