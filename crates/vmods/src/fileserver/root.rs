//! A folder with the types of its files.

use std::path::PathBuf;

use super::mime::Types;

pub(super) struct Root {
    pub path: PathBuf,
    pub types: Types,
}
