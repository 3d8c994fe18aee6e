//! sqlx, as any async function: by `run`. The function counts in place of a server.

use clients::{Counts, call_all, limiter};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{Row, query};
use tollgate::Limiter;

#[tokio::test]
async fn sqlx() {
    let counts = Counts::default();
    let limiter = limiter();
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .connect("sqlite::memory:")
        .await
        .expect("a database");

    call_all(async || {
        let call = async {
            assert!(counts.accept());
            query("SELECT 7").fetch_one(&pool).await
        };

        // The limit.
        let row = limiter.run(1, call).await;
        // Until here.

        assert_eq!(row.expect("granted").expect("a row").get::<i64, _>(0), 7);
    })
    .await;
    counts.check("sqlx");
}
