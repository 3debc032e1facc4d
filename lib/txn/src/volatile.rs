//! The replacement for the log in builds without one: those without the feature `durable`, and those for the virtual
//! machine (a simulator without disks).

use core::marker::PhantomData;

use crate::error::Error;
use crate::scheme::Scheme;
use crate::shared::Shared;

enum Never {}

pub(crate) struct Log<S>(Never, PhantomData<fn() -> S>);

impl<S: Scheme> Log<S> {
    pub(crate) fn append(&self, _: u64, _: &[u8]) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn acknowledge(&self, _: &Shared<S>, _: u64) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn end(&self, _: &Shared<S>) {
        match self.0 {}
    }
}
