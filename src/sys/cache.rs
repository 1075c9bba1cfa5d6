//! What the page cache holds: mincore(2), cachestat(2), posix_fadvise(2).
