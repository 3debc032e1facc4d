//! Tests for each scheme (kind of concurrency control).

/// Runs a function that is generic over the scheme, for each scheme.
macro_rules! by_every_scheme {
    ($($name:ident: $run:ident;)*) => { $(
        mod $name {
            #[test]
            fn silo() {
                super::$run::<archipelago_txn::Silo>();
            }
            #[test]
            fn tictoc() {
                super::$run::<archipelago_txn::TicToc>();
            }
            #[test]
            fn no_wait() {
                super::$run::<archipelago_txn::NoWait>();
            }
            #[test]
            fn wait_die() {
                super::$run::<archipelago_txn::WaitDie>();
            }
            #[test]
            fn hekaton() {
                super::$run::<archipelago_txn::Hekaton>();
            }
            #[test]
            fn mvrlu() {
                super::$run::<archipelago_txn::MvRlu>();
            }
        }
    )* };
}
pub(crate) use by_every_scheme;
