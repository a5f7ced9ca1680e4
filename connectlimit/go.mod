module github.com/ratelimit-go/ratelimit/connectlimit

go 1.25.0

require (
	connectrpc.com/connect v1.18.1
	github.com/ratelimit-go/ratelimit v0.1.0
	github.com/stretchr/testify v1.12.1
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250528174236-200df99c418a
	google.golang.org/protobuf v1.36.6
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
