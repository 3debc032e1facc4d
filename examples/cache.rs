//! A cache of rendered pages, bounded by bytes. A page that many ask for at once is rendered by one; when a site changes, its
//! pages are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use archipelago::cache::{Cache, Heap};

/// A site and a path.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Page {
    site: String,
    path: String,
}

impl Heap for Page {
    fn heap_bytes(&self) -> usize {
        self.site.heap_bytes() + self.path.heap_bytes()
    }
}

struct Pages {
    cache: Cache<Page, Arc<str>>,
    rendered: AtomicUsize,
}

impl Pages {
    fn new(bytes: usize) -> Self {
        Self { cache: Cache::builder().record_hits().bytes(bytes), rendered: AtomicUsize::new(0) }
    }

    /// The page, rendered if it is not here, by one thread however many ask.
    fn get(&self, site: &str, path: &str) -> Arc<str> {
        let page = Page { site: site.to_owned(), path: path.to_owned() };
        self.cache.get_or_insert_with(page, |page| {
            self.rendered.fetch_add(1, Ordering::Relaxed);
            Arc::from(format!("<h1>{}{}</h1>", page.site, page.path))
        })
    }

    /// Drops all pages of a site; how many.
    fn invalidate(&self, site: &str) -> usize {
        self.cache.invalidate_if(|page, _| page.site == site)
    }
}

fn main() {
    const PATHS: usize = 1_000;
    let pages = Pages::new(4 << 20);
    let sites = ["a.example", "b.example", "c.example"];
    thread::scope(|scope| {
        for thread in 0..6 {
            let (pages, site) = (&pages, sites[thread % sites.len()]);
            scope.spawn(move || (0..PATHS).for_each(|path| _ = pages.get(site, &format!("/page/{path}"))));
        }
    });
    let rendered = pages.rendered.load(Ordering::Relaxed);
    assert_eq!(rendered, 3 * PATHS, "two threads ask for each page, and one renders it");
    assert_eq!(pages.invalidate("b.example"), PATHS);

    let stats = pages.cache.stats();
    assert_eq!(stats.len, 2 * PATHS);
    println!(
        "{rendered} pages rendered for {} requests; {} of them are left, in {} of {} KiB, when one of three sites had changed",
        6 * PATHS,
        stats.len,
        stats.weight >> 10,
        stats.capacity >> 10
    );
}

#[test]
fn it_runs() {
    main();
}
