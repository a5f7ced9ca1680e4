module github.com/ratelimit-go/ratelimit/examples/httpserver

go 1.25.0

require (
	github.com/go-chi/chi/v5 v5.3.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/prometheus/client_golang v1.19.1
	github.com/ratelimit-go/ratelimit v0.1.0
	github.com/ratelimit-go/ratelimit/pgstore v0.1.0
	github.com/ratelimit-go/ratelimit/prommetrics v0.1.0
	github.com/ratelimit-go/ratelimit/redisstore v0.1.0
	github.com/redis/go-redis/v9 v9.19.0
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/prometheus/client_model v0.5.0 // indirect
	github.com/prometheus/common v0.48.0 // indirect
	github.com/prometheus/procfs v0.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/stretchr/testify v1.12.1
	go.uber.org/atomic v1.11.0 // indirect
	go.uber.org/goleak v1.3.0
)

replace (
	github.com/ratelimit-go/ratelimit => ../../
	github.com/ratelimit-go/ratelimit/pgstore => ../../pgstore
	github.com/ratelimit-go/ratelimit/prommetrics => ../../prommetrics
	github.com/ratelimit-go/ratelimit/redisstore => ../../redisstore
)
