//! What a domain holds when its structure comes to rest, and the thread that sees to it.
//!
//! Retiring drives the epoch, so the memory of the last things retired would wait for the next ones: for ever, in a
//! structure that nothing is done with any more, and with it a destructor, and all that the object owns (the last
//! reference to the structure itself, perhaps, which no other thread can know of). A structure that has no thread of its
//! own for this asks for it ([`Domain::tended_by`]). The process then has one thread for all of them. It is started by the
//! first garbage, and sleeps while all the domains that it knows are clean.
//!
//! **Looks are few.** [`Rest::word`] is [`NEW`] nearly always while the structure is in use: a thread that retires the first
//! object of a bag reads that and does no more. Each look makes it [`WATCHED`], and frees what can be freed. If it is `NEW`
//! again by the next look, the structure is in use. If not, and nothing is left, it is made [`UNWATCHED`] and forgotten
//! until a thread that retires something says so. What readers hold is looked at [`LOOKS`] times, each time twice as far
//! away, up to [`LONGEST`].
//!
//! No garbage is overlooked. A look makes the word `WATCHED`, then locks and seals every bag. Take the first object of a
//! bag, and what was put beside it. If the look's lock comes after an object was put in, the look has it. If not, the bag was
//! sealed in between or is a new one, whose first object came after the look's lock as well: its thread, which reads the word
//! after that, finds `WATCHED` or later. So it makes that `NEW`, which the next look sees, or rouses the thread.
//!
//! **The end.** The thread has the structure's owner only while it looks, under a lock; who drops the owner ends that
//! ([`Domain::stop_tending`]), and waits for a look under way, unless it is this thread itself that drops it (an object that
//! owned the structure was reclaimed): then the look goes on, and the domain goes with it.
//!
//! **After `fork`** the child has no such thread. It starts one of its own when it needs it, for domains that were clean
//! at that moment; and it waits for no look of its parent's. No fork falls into a look ([`outside_forks`]): a bag's lock that the
//! thread held would be held in the child for ever, and the objects that it had taken out of a bag would be lost there.

use archipelago_platform::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};
use archipelago_platform::fork::outside_forks;
use archipelago_platform::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};
use archipelago_platform::thread::{self, ThreadId};
use archipelago_platform::time::{Duration, Instant};
use core::cmp::Reverse;
use core::ptr;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::domain::Domain;
use super::garbage::drop_quietly;

/// When the first look comes after the first garbage,
const FIRST: Duration = Duration::from_millis(1);

/// how far apart looks are at most,
const LONGEST: Duration = Duration::from_millis(1024);

/// and how many of them leave garbage although nothing is retired, at most: all in all some seconds.
const LOOKS: u32 = 14;

/// There is garbage that came after the last look, and a look to come; or there are none any more.
const NEW: u8 = 0;
/// There has been none since the last look, and there is a look to come.
const WATCHED: u8 = 1;
/// There is no look to come.
const UNWATCHED: u8 = 2;

/// What keeps a [`Domain`] where it is: the structure that the domain is of, or whatever it lies in.
pub trait Owner: Send + Sync + 'static {
    /// The domain.
    fn domain(&self) -> &Domain;
}

impl Owner for Domain {
    fn domain(&self) -> &Domain {
        self
    }
}

/// A domain that the thread looks after.
pub(super) struct Rest {
    owner: Weak<dyn Owner>,
    word: AtomicU8,
    is_over: AtomicBool,
    /// Held while the thread looks.
    looking: Mutex<()>,
    /// The process whose thread has been told.
    process: AtomicU32,
}

impl Rest {
    pub(super) fn new(owner: Weak<dyn Owner>) -> Arc<Self> {
        Arc::new(Self {
            owner,
            word: AtomicU8::new(if cfg!(any(miri, archipelago_sim)) { NEW } else { UNWATCHED }),
            is_over: AtomicBool::new(false),
            looking: Mutex::new(()),
            process: AtomicU32::new(0),
        })
    }

    /// Something was retired, just now, into an empty bag.
    #[inline]
    pub(super) fn note(self: &Arc<Self>) {
        // Relaxed: the bag's lock orders it, see the module's text.
        if self.word.load(Ordering::Relaxed) != NEW {
            self.tell();
        }
    }

    #[cold]
    fn tell(self: &Arc<Self>) {
        if self.word.swap(NEW, Ordering::Relaxed) == UNWATCHED
            && !self.is_over()
            && let Some(tender) = Tender::of_this_process()
        {
            self.process.store(std::process::id(), Ordering::Relaxed);
            lock(&tender.told).push(self.clone());
            tender.bell.notify_one();
        }
    }

    /// No look begins from now on.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.word.store(NEW, Ordering::Relaxed);
    }

    /// Waits for a look under way, unless that is what called.
    pub(super) fn wait(&self) {
        let process = self.process.load(Ordering::Relaxed);
        if process != 0 && process == std::process::id() && !Tender::is_this_thread() {
            drop(lock(&self.looking));
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Frees what can be freed; whether it was used since the last look, or has something left, or `None` if it ends here.
    fn look(&self, in_vain: u32) -> Option<u32> {
        // The owner goes before the lock is let go of: who has waited for that has it to itself.
        let _looking = lock(&self.looking);
        // Ended before the lock was taken, by a thread that waits for the lock or has waited: or not ended.
        let owner = if self.is_over() { None } else { self.owner.upgrade() }?;
        let is_used = self.word.swap(WATCHED, Ordering::Relaxed) == NEW;
        reclaim(owner.domain());
        if is_used {
            return Some(0);
        }
        let is_last = in_vain + 1 >= LOOKS || owner.domain().stats().pending == 0;
        // If there has been something new meanwhile, the next look will see it.
        let unwatch = || self.word.compare_exchange(WATCHED, UNWATCHED, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_last && unwatch() { None } else { Some(in_vain + 1) }
    }
}

/// Also what the reclaim functions have retired, if that has an end.
fn reclaim(domain: &Domain) {
    for _ in 0..4 {
        // The panic hook has reported it; the thread is all users'.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| domain.collect())) {
            drop_quietly(payload);
        }
        if domain.stats().pending == 0 {
            return;
        }
    }
}

/// The thread, as others see it.
struct Tender {
    process: u32,
    told: Mutex<Vec<Arc<Rest>>>,
    bell: Condvar,
    thread: OnceLock<ThreadId>,
}

static TENDER: AtomicPtr<Tender> = AtomicPtr::new(ptr::null_mut());

impl Tender {
    /// The latest, of whatever process.
    fn latest() -> Option<&'static Self> {
        // SAFETY: null, or leaked. Acquire: pairs with the Release in `start`.
        unsafe { TENDER.load(Ordering::Acquire).as_ref() }
    }

    fn is_this_thread() -> bool {
        Self::latest().is_some_and(|tender| tender.thread.get() == Some(&thread::current().id()))
    }

    /// `None` if the operating system refuses a thread.
    fn of_this_process() -> Option<&'static Self> {
        let latest = Self::latest();
        latest.filter(|tender| tender.process == std::process::id()).or_else(|| Self::start(latest))
    }

    #[cold]
    fn start(latest: Option<&'static Self>) -> Option<&'static Self> {
        let (told, thread) = (Mutex::new(Vec::new()), OnceLock::new());
        let tender = Box::new(Self { process: std::process::id(), told, bell: Condvar::new(), thread });
        // Leaked, once in a process: the thread has no end, and nor have its parent's words in a child.
        let (tender, old) =
            (Box::into_raw(tender), latest.map_or(ptr::null_mut(), |old| ptr::from_ref(old).cast_mut()));
        if TENDER.compare_exchange(old, tender, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: from a box above, and not shared.
            drop(unsafe { Box::from_raw(tender) });
            return Self::of_this_process();
        }
        // SAFETY: leaked.
        let tender = unsafe { &*tender };
        let thread = thread::Builder::new().name("archipelago-rcu".to_owned()).spawn(|| tender.live());
        if thread.is_err() {
            // Domains that have told it stay `NEW`, which is as without it; the next one tries again.
            let _ = TENDER.compare_exchange(
                ptr::from_ref(tender).cast_mut(),
                ptr::null_mut(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
        thread.is_ok().then_some(tender)
    }

    fn live(&self) {
        self.thread.get_or_init(|| thread::current().id());
        let (mut looks, mut number) = (BTreeMap::new(), 0_u64);
        loop {
            let new = self.wait(looks.first_key_value().map(|((due, _), _)| *due));
            for rest in new {
                number += 1;
                looks.insert((Instant::now() + FIRST, Reverse(number)), Look { rest, delay: FIRST, in_vain: 0 });
            }
            let now = Instant::now();
            while let Some(first) = looks.first_entry().filter(|first| first.key().0 <= now) {
                let ((_, number), look) = first.remove_entry();
                if let Some(look) = outside_forks(|| look.next()) {
                    looks.insert((Instant::now() + look.delay, number), look);
                }
            }
        }
    }

    /// Sleeps until there is something new, or something is due.
    fn wait(&self, due: Option<Instant>) -> Vec<Arc<Rest>> {
        let mut told = lock(&self.told);
        while told.is_empty() {
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            told = match left {
                None => self.bell.wait(told).unwrap_or_else(|poisoned| poisoned.into_inner()),
                Some(Duration::ZERO) => break,
                Some(left) => self.bell.wait_timeout(told, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0,
            };
        }
        core::mem::take(&mut *told)
    }
}

/// A look to come.
struct Look {
    rest: Arc<Rest>,
    delay: Duration,
    /// How many have left garbage although nothing was retired.
    in_vain: u32,
}

impl Look {
    fn next(mut self) -> Option<Self> {
        // The owner is foreign code, too, and its drop: one that panics is not looked at any more.
        let looked = catch_unwind(AssertUnwindSafe(|| self.rest.look(self.in_vain)));
        self.in_vain = looked.unwrap_or_else(|payload| {
            drop_quietly(payload);
            None
        })?;
        self.delay = (2 * self.delay).min(LONGEST);
        Some(self)
    }
}

/// Foreign code never runs under the list's lock, and what it does under the other is no matter of that one's.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
