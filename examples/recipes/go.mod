module github.com/ratelimit-go/ratelimit/examples/recipes

go 1.25.0

require (
	github.com/coder/websocket v1.8.14
	github.com/go-chi/chi/v5 v5.3.0
	github.com/golang-jwt/jwt/v5 v5.3.1
	github.com/ratelimit-go/ratelimit v0.1.0
	github.com/rs/cors v1.11.1
	github.com/stretchr/testify v1.12.1
	golang.org/x/text v0.34.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace github.com/ratelimit-go/ratelimit => ../../
