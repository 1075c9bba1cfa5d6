//! Stage files, notification and marks.
