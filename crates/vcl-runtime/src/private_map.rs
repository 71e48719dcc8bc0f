//! Values of modules with the lifetime of a task or a request.

use std::any::Any;

/// Values that modules store, identified by type and by a key that distinguishes several of one type.
#[derive(Default)]
pub struct PrivateMap {
    cells: Vec<(usize, Box<dyn Any>)>,
}

impl PrivateMap {
    /// Returns the value. Creates the default value at its first use.
    pub fn get<T: Default + 'static>(&mut self, key: usize) -> &mut T {
        let at = match self.cells.iter().position(|(k, v)| *k == key && v.is::<T>()) {
            Some(at) => at,
            None => {
                self.cells.push((key, Box::<T>::default()));
                self.cells.len() - 1
            }
        };
        self.cells[at].1.downcast_mut::<T>().expect("the position was chosen by this type")
    }

    /// Returns the value that is stored under the key, if there is one.
    pub fn peek<T: 'static>(&self, key: usize) -> Option<&T> {
        self.cells.iter().find(|(k, _)| *k == key).and_then(|(_, v)| v.downcast_ref::<T>())
    }

    pub fn clear(&mut self) {
        self.cells.clear();
    }
}
