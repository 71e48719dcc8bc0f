//! Gauges of threads. They show the threads that Varnish would run by the parameters; reactors replace them.

use lacquer_params::Params;
use lacquer_shm::vsc::Main;

pub fn publish(main: &Main, params: &Params) {
    main.pools.set(u64::from(params.thread_pools));
    main.threads.set(u64::from(params.thread_pools) * u64::from(params.thread_pool_min));
}
