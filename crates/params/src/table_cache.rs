//! Parameters of the cache: lifetimes, bans, storage and limits of fetches.

macro_rules! cache_params {
    ([$next:ident $($rest:ident)*] $($rows:tt)*) => { $next! { [$($rest)*] $($rows)*

default_ttl: Duration = "2m" { units = "seconds", min = "0", flags = OBJ_STICKY }
    "Time to live of an object if neither the backend nor VCL sets it.";
default_grace: Duration = "10s" { units = "seconds", min = "0", flags = OBJ_STICKY }
    "Time after its expiry during which an object may be served while a new copy is fetched.";
default_keep: Duration = "0s" { units = "seconds", min = "0", flags = OBJ_STICKY }
    "Time after its grace during which an expired object is kept, so that a conditional request can \
     revalidate it.";
stale_if_error: Timeout = "never" { units = "seconds", min = "0", flags = OBJ_STICKY }
    "Time after its expiry during which an object may be delivered if the fetch of a new one fails, or the backend \
     responds with 500, 502, 503 or 504, unless the directive stale-if-error in its Cache-Control has another time. \
     With 0, only objects with this directive are delivered. With never, its directive is ignored as in Varnish, unless \
     the parameter feature has the bit rfc9111. The time does not apply to responses that are stale when they arrive, or must be \
     validated (must-revalidate, proxy-revalidate, no-cache). VCL can override it (beresp.stale_if_error).";
uncacheable_ttl: Duration = "2m" { units = "seconds", min = "0", flags = OBJ_STICKY }
    "Time for which the cache stores the decision that a response is uncacheable.";
shortlived: Duration = "10.000" { units = "seconds", min = "0" }
    "Objects whose ttl, grace and keep together are below this value are stored in Transient.";
clock_skew: Uint = "10" { units = "seconds", min = "0" }
    "Maximum difference between a backend's clock and ours. Dates of a backend that exceeds it are ignored.";
clock_step: Duration = "1.000" { units = "seconds", min = "0" }
    "Maximum jump of the system clock that is tolerated.";
ban_dups: Bool = "on" { units = "bool" }
    "When a ban is added, mark older identical bans as completed. This costs a little for each new ban \
     and avoids testing objects twice.";
ban_cutoff: Uint = "0" { units = "bans", min = "0", flags = EXPERIMENTAL }
    "Limit on the length of the ban list: objects that have not been tested since the ban in this \
     position are removed from the cache by the ban lurker. This prevents slow lookups when \
     bans are added faster than they can be tested. 0 disables the limit.";
ban_lurker_age: Duration = "60" { units = "seconds", min = "0" }
    "Age that a ban must have before the ban lurker tests it, because bans often arrive in bursts.";
ban_lurker_batch: Uint = "1000" { min = "1" }
    "Number of objects after which the ban lurker sleeps for ban_lurker_sleep.";
ban_lurker_sleep: Duration = "0.010" { units = "seconds", min = "0" }
    "Time that the ban lurker sleeps after ban_lurker_batch objects. 0 disables the lurker.";
ban_lurker_holdoff: Duration = "0.010" { units = "seconds", min = "0", flags = EXPERIMENTAL }
    "Time that the ban lurker waits when a lookup needs the same lock.";
ban_any_variant: Uint = "0" { units = "checks", min = "0" }
    "Maximum number of non-matching variants that one lookup tests against the bans. \
     With 0, only matching variants are tested.";
vary_notice: Uint = "10" { units = "variants", min = "1" }
    "Number of compared variants above which a lookup logs a Notice.";
lru_interval: Duration = "2.000" { units = "seconds", min = "0", flags = EXPERIMENTAL }
    "Minimum time between two moves of an object to the front of the LRU list.";
nuke_limit: Uint = "50" { units = "allocations", min = "0", flags = EXPERIMENTAL }
    "Maximum number of objects that are evicted to store a body, for each megabyte of it. Memory in front of a disk (-s disk) \
     has no such limit, because the disk has the objects.";
disk_admission: Uint = "1" { units = "requests", min = "1", max = "2" }
    "Number of requests for an object after which it is written to the disk of its storage (-s disk). With 1, all objects \
     are written when they have been fetched. With 2, objects that are requested only once are not: an object is written \
     at its first hit in memory, or when it is fetched again after it has left memory, if few enough other objects were \
     requested in between. The keys of the last two million objects are remembered, in 8 MB of memory.";
disk_flush_interval: Duration = "1.000" { units = "seconds", min = "0.010" }
    "Time after which objects that were written to a disk (-s disk) are made durable. Objects that were written \
     within this time before a cut of power may be lost. Purges and bans are durable before they are answered.";
fetch_chunksize: Bytes = "16k" { units = "bytes", min = "4k", flags = EXPERIMENTAL }
    "Size of storage that a fetch allocates at a time if the length is unknown. It should exceed the size of \
     most objects.";
fetch_maxchunksize: Bytes = "0.25G" { units = "bytes", min = "64k", flags = EXPERIMENTAL }
    "Maximum size of a single allocation of storage.";
transit_buffer: Bytes = "1M" { units = "bytes", min = "0k" }
    "Maximum number of bytes that a fetch of an uncacheable response may be ahead of its client; 0 is no limit \
     (the default of Varnish). The limit prevents large responses to slow clients from being stored \
     completely; in return, the backend connection is in use until the client has received all but that many \
     bytes. Responses for the cache and responses without beresp.do_stream are not limited. This is the \
     default of beresp.transit_buffer.";
critbit_cooloff: Duration = "180.000" { units = "seconds", min = "60.000", max = "254.000", flags = WIZARD }
    "Time for which removed index nodes are kept before they are reused.";
gzip_buffer: Bytes = "32k" { units = "bytes", min = "2k", flags = EXPERIMENTAL }
    "Size of the buffer for compression and decompression: the maximum number of bytes that gzip, gunzip, ESI \
     or range produce before they are sent or stored. Values above 64k count as 64k.";
gzip_level: Uint = "6" { min = "0", max = "9" }
    "Compression level: 1 is the fastest, 9 the smallest, 0 stores without compression.";
gzip_memlevel: Uint = "8" { min = "1", max = "9" }
    "Memory for compression: 1 is the least and slowest, 9 the most and fastest.";
http_gzip_support: Bool = "on" { units = "bool" }
    "Request compressed responses from backends, store them compressed, and decompress them for clients that need \
     it. When on, Accept-Encoding is set to gzip for clients that accept gzip and removed for all \
     others. When off, beresp.do_gzip and beresp.do_gunzip have no effect.";
max_esi_depth: Uint = "5" { units = "levels", min = "0" }
    "Maximum nesting depth of esi:include.";
rush_exponent: Uint = "3" { units = "requests per request", min = "1", flags = EXPERIMENTAL }
    "Number of waiting requests that each completed one wakes.";
    } };
}
