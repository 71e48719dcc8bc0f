//! The actions that each subroutine may return.

use crate::types::{Action, Method};
use crate::variables_table::ALL;

const fn m(method: Method) -> u32 {
    1 << method as u32
}

/// Returns the methods that may return an action, as bits `1 << Method as u32`.
pub fn allowed_in(action: Action) -> u32 {
    use Method::{
        BackendError, BackendFetch, BackendRefresh, BackendResponse, Deliver, Fini, Hash, Hit, Init, Miss,
        Pass, Pipe, Purge, Recv, Synth,
    };
    match action {
        Action::Abandon => m(BackendError) | m(BackendFetch) | m(BackendRefresh) | m(BackendResponse),
        Action::Beresp | Action::Merge | Action::ObjStale => m(BackendRefresh),
        Action::Deliver => m(BackendError) | m(BackendResponse) | m(Deliver) | m(Hit) | m(Synth),
        Action::Error => m(BackendFetch) | m(BackendRefresh) | m(BackendResponse),
        Action::Fail => ALL & !m(Fini),
        Action::Fetch => m(BackendFetch) | m(Miss) | m(Pass),
        Action::Hash | Action::Purge | Action::Vcl => m(Recv),
        Action::Lookup => m(Hash),
        Action::Ok => m(Fini) | m(Init),
        Action::Pass => m(BackendResponse) | m(Hit) | m(Miss) | m(Recv),
        Action::Pipe => m(Pipe) | m(Recv),
        Action::Restart => m(Deliver) | m(Hit) | m(Miss) | m(Pass) | m(Purge) | m(Recv) | m(Synth),
        Action::Retry => m(BackendError) | m(BackendRefresh) | m(BackendResponse),
        Action::Synth => m(Deliver) | m(Hit) | m(Miss) | m(Pass) | m(Pipe) | m(Purge) | m(Recv),
    }
}

/// Returns the actions that a method may return, as bits `1 << Action as u32`.
pub fn returns_of(method: Method) -> u32 {
    let allowed = Action::ALL.iter().filter(|a| allowed_in(**a) & m(method) != 0);
    allowed.fold(0, |bits, action| bits | 1 << *action as u32)
}

/// Returns the methods in the order of their names, which is the order of checks and lists.
pub(crate) fn methods_by_name() -> Vec<Method> {
    let mut methods = Method::ALL.to_vec();
    methods.sort_by_key(|m| m.sub_name());
    methods
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tables_agree() {
        assert_eq!(returns_of(Method::Fini), 1 << Action::Ok as u32);
        assert_eq!(returns_of(Method::Recv).count_ones(), 8);
        assert_eq!(returns_of(Method::BackendRefresh).count_ones(), 7);
        assert_eq!(methods_by_name()[0], Method::BackendError);
    }
}
