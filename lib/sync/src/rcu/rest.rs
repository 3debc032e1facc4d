//! Garbage of idle structures, and the process's thread that reclaims it.
//!
//! Retiring advances the epoch, so the last retired objects wait for later ones. In an idle structure they would wait
//! forever, and so would their destructors and everything that they own. The objects may even own the last reference to
//! the structure itself, and no other thread can know this. A structure that has no thread of its own to reclaim such
//! objects registers with [`Domain::tended_by`]. The process has one thread for all registered domains. The first
//! garbage starts this thread, and it sleeps while all domains that it knows have no garbage.
//!
//! **Looks are few.** A *look* is a visit of the process's thread to a domain: the thread sets [`Rest::word`] to
//! [`WATCHED`], and reclaims the objects that may be reclaimed. Each thread collects the objects that it retires in a
//! *bag*. A thread that retires the first object of a bag sets the word to [`NEW`]. While the structure is in use, the
//! word is nearly always `NEW`, so such a thread only loads it. If the word is `NEW` again at the next look, the
//! structure is in use. If the word is still `WATCHED`, and no garbage is left, the word becomes [`UNWATCHED`], and the
//! thread forgets the domain until a thread that retires an object wakes it. If readers keep garbage, at most [`LOOKS`]
//! looks follow, each after twice the time, up to [`LONGEST`].
//!
//! No garbage is overlooked. A look makes the word `WATCHED`, then locks and seals every bag. If an object was added
//! before the look locked its bag, the look finds it. If not, the bag's first object was also added after the look's
//! lock, since the look seals all bags. The thread that added the first object loads the word afterwards, so it finds
//! `WATCHED` or a later state. It sets the word to `NEW`, which the next look sees, or wakes the thread.
//!
//! **The end.** The thread has a reference to the structure's owner only during a look, under a lock. Before the owner
//! is dropped, [`Domain::stop_tending`] ends the looks and waits for one that is running. The process's thread itself
//! may drop the owner, when it reclaims an object that owns the structure. In this case `stop_tending` does not wait:
//! the look continues, and the domain is dropped at the look's end.
//!
//! **After `fork`** the child has no such thread. The child starts a thread of its own when it needs one, for domains
//! that had no garbage at the fork, and does not wait for looks of its parent. A fork waits for the end of a look, for
//! at most a second ([`outside_forks`]). Otherwise a bag's lock that the thread held would be held in the child
//! forever, and objects that it had taken from a bag would be lost there.

use archipelago_platform::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};
use archipelago_platform::fork::{outside_forks, process};
use archipelago_platform::panics::quietly;
use archipelago_platform::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};
use archipelago_platform::thread::{self, ThreadId};
use archipelago_platform::time::{Duration, Instant};
use core::cmp::Reverse;
use core::ptr;
use std::collections::BTreeMap;

use super::domain::Domain;

/// The time from the first garbage to the first look.
const FIRST: Duration = Duration::from_millis(1);

/// The longest time between two looks.
const LONGEST: Duration = Duration::from_millis(1024);

/// The largest number of successive looks that leave garbage although nothing is retired. All of them together take
/// some seconds.
const LOOKS: u32 = 14;

/// Objects were retired after the last look, and another look will follow; or looks have ended forever; or the thread
/// could not be started.
const NEW: u8 = 0;
/// No object was retired into an empty bag since the last look, and another look will follow.
const WATCHED: u8 = 1;
/// No look will follow.
const UNWATCHED: u8 = 2;

/// The structure, or other object, that contains a [`Domain`] and does not move it.
pub trait Owner: Send + Sync + 'static {
    /// Returns the domain.
    fn domain(&self) -> &Domain;
}

impl Owner for Domain {
    fn domain(&self) -> &Domain {
        self
    }
}

/// A domain that is registered for looks by the process's thread.
pub(super) struct Rest {
    owner: Weak<dyn Owner>,
    word: AtomicU8,
    is_over: AtomicBool,
    /// Held while the thread looks.
    looking: Mutex<()>,
    /// The process whose thread knows the domain.
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

    /// Notes that an object has just been retired into an empty bag.
    #[inline]
    pub(super) fn note(self: &Arc<Self>) {
        // Relaxed: the bag's lock orders the load, see the module's text.
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
            self.process.store(process(), Ordering::Relaxed);
            lock(&tender.told).push(self.clone());
            tender.bell.notify_one();
        }
    }

    /// Prevents all further looks.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.word.store(NEW, Ordering::Relaxed);
    }

    /// Waits for a running look to end, unless the caller is that look.
    pub(super) fn wait(&self) {
        let of = self.process.load(Ordering::Relaxed);
        if of != 0 && of == process() && !Tender::is_this_thread() {
            drop(lock(&self.looking));
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Frees what can be freed. Returns how many successive looks have left garbage although nothing was retired, or
    /// `None` if no look is to follow.
    fn look(&self, in_vain: u32) -> Option<u32> {
        // The reference to the owner is dropped before the lock is released, so a thread that has waited for the lock
        // has the owner to itself.
        let _looking = lock(&self.looking);
        // If the domain was ended before the lock was taken, the thread that ended it waits for the lock or has waited
        // for it.
        let owner = if self.is_over() { None } else { self.owner.upgrade() }?;
        let is_used = self.word.swap(WATCHED, Ordering::Relaxed) == NEW;
        reclaim(owner.domain());
        if is_used {
            return Some(0);
        }
        let is_last = in_vain + 1 >= LOOKS || owner.domain().stats().pending == 0;
        // If an object was retired meanwhile, the next look will see it.
        let unwatch = || self.word.compare_exchange(WATCHED, UNWATCHED, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_last && unwatch() { None } else { Some(in_vain + 1) }
    }
}

/// Collects at most four times, so that objects which reclaim functions retire are reclaimed, too.
fn reclaim(domain: &Domain) {
    for _ in 0..4 {
        // The panic hook has reported the panic. The thread serves all structures, so it continues.
        quietly(|| domain.collect());
        if domain.stats().pending == 0 {
            return;
        }
    }
}

/// The interface of the thread for other threads.
struct Tender {
    process: u32,
    told: Mutex<Vec<Arc<Rest>>>,
    bell: Condvar,
    thread: OnceLock<ThreadId>,
}

static TENDER: AtomicPtr<Tender> = AtomicPtr::new(ptr::null_mut());

impl Tender {
    /// Returns the interface of the thread that was started last. It may belong to a parent process.
    fn latest() -> Option<&'static Self> {
        // SAFETY: null, or leaked. Acquire: pairs with the Release in `start`.
        unsafe { TENDER.load(Ordering::Acquire).as_ref() }
    }

    fn is_this_thread() -> bool {
        Self::latest().is_some_and(|tender| tender.thread.get() == Some(&thread::current().id()))
    }

    /// Returns this process's thread, or `None` if the operating system refuses to start one.
    fn of_this_process() -> Option<&'static Self> {
        let latest = Self::latest();
        latest.filter(|tender| tender.process == process()).or_else(|| Self::start(latest))
    }

    #[cold]
    fn start(latest: Option<&'static Self>) -> Option<&'static Self> {
        let (told, thread) = (Mutex::new(Vec::new()), OnceLock::new());
        let tender = Box::new(Self { process: process(), told, bell: Condvar::new(), thread });
        // Leaked, once in each process: the thread never ends. In a child process, the parent's state is leaked, too.
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
            // If the thread cannot be started, registered domains keep the state `NEW`, as without the thread. The next
            // domain that needs the thread tries again to start it.
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

    /// Sleeps until a domain is added or a look is due.
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

/// A scheduled look.
struct Look {
    rest: Arc<Rest>,
    delay: Duration,
    /// How many successive looks have left garbage although nothing was retired.
    in_vain: u32,
}

impl Look {
    fn next(mut self) -> Option<Self> {
        // The owner and its drop are foreign code, too: an owner that panics gets no further looks.
        self.in_vain = quietly(|| self.rest.look(self.in_vain)).flatten()?;
        self.delay = (2 * self.delay).min(LONGEST);
        Some(self)
    }
}

/// Locks a mutex. A poisoned one is sound: foreign code never runs under the list's lock, and the lock `looking`
/// protects no data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
