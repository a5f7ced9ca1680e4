module github.com/ratelimit-go/ratelimit/examples/httpserver

go 1.25.0

require (
	github.com/go-chi/chi/v5 v5.3.0
	github.com/ratelimit-go/ratelimit v0.1.0
	github.com/ratelimit-go/ratelimit/redisstore v0.1.0
	github.com/redis/go-redis/v9 v9.19.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/stretchr/testify v1.12.1
	go.uber.org/atomic v1.11.0 // indirect
	go.uber.org/goleak v1.3.0
)

replace (
	github.com/ratelimit-go/ratelimit => ../../
	github.com/ratelimit-go/ratelimit/redisstore => ../../redisstore
)
