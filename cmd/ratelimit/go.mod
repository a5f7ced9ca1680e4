module github.com/ratelimit-go/ratelimit/cmd/ratelimit

go 1.25.0

require (
	github.com/jackc/pgx/v5 v5.12.0 // the client of pgstore, for top and reset
	github.com/ratelimit-go/ratelimit v0.1.0
	github.com/ratelimit-go/ratelimit/pgstore v0.1.0
	github.com/ratelimit-go/ratelimit/redisstore v0.1.0
	github.com/redis/go-redis/v9 v9.19.0 // the client of redisstore, for top and reset
	github.com/stretchr/testify v1.12.1
)

require golang.org/x/term v0.29.0

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)
