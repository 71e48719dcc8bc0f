//! The variables `storage.<name>.*`, and storages as VCL values: their number plus one, or 0 for none.

use lacquer_vcl::variables_table::Var;

use crate::stevedores::Stevedores;

/// The largest INTEGER of VCL. It stands for the size of a storage without a limit.
const INTEGER_MAX: u64 = 999_999_999_999_999;

pub fn value(all: &Stevedores, name: &str, var: Var) -> i64 {
    let Some(stevedore) = all.by_name(name).and_then(|index| all.get(index)) else { return 0 };
    let bytes = match var {
        Var::StorageUsedSpace => stevedore.used_space(),
        Var::StorageFreeSpace => {
            stevedore.free_space().min(INTEGER_MAX - stevedore.used_space().min(INTEGER_MAX))
        }
        _ => u64::from(stevedore.happy()),
    };
    bytes as i64
}

pub fn by_name(all: &Stevedores, name: &str) -> u32 {
    all.by_name(name).map_or(0, |index| index + 1)
}

/// Returns the name of a storage in VCL.
pub fn name(all: &Stevedores, number: u32) -> Option<&[u8]> {
    let found = number.checked_sub(1).and_then(|index| all.get(index));
    found.map(|stevedore| stevedore.vcl_name().as_bytes())
}
